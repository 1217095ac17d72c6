// An agent of @ag-ui/client that follows a thread until its run has ended, and connects again whenever it loses it.
// Says how much text it has, and at last what it shows.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client"

const [url, threadId] = process.argv.slice(2)

class Connecting extends HttpAgent {
  connect(input) {
    const body = JSON.stringify(input)
    const headers = { "content-type": "application/json", accept: "text/event-stream" }
    return transformHttpEventStream(runHttpRequest(() => fetch(this.url, { method: "POST", headers, body })))
  }
}

const agent = new Connecting({ url: `${url}/v1/agui/connect`, threadId })
const told = { connections: 0, broken: 0, ended_early: 0, outcome: "" }
const text = () => agent.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "").join("")
console.error = console.warn = console.debug = () => {}
process.on("unhandledRejection", () => {}) // of a connection that is cut the client rejects a second promise, which nobody has

while (!told.outcome) {
  told.connections += 1
  try {
    await agent.connectAgent({}, {
      onRunFinishedEvent: () => { told.outcome = "RUN_FINISHED" },
      onRunErrorEvent: () => { told.outcome = "RUN_ERROR" },
      onMessagesChanged: () => { console.log(text().length) },
    })
    if (!told.outcome) told.ended_early += 1
  } catch {
    told.broken += 1
  }
  if (!told.outcome) await new Promise((resolve) => setTimeout(resolve, 100))
}
console.log(JSON.stringify({ ...told, text: text(), messages: agent.messages }))
