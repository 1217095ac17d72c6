// A page with a chat of the AI SDK that resumes the answer under way until it is whole, however often it loses it.
// Says how much text it has, and at last what it shows.
import { AbstractChat, DefaultChatTransport } from "ai"

const [url, id] = process.argv.slice(2)

class State {
  status = "ready"
  error = undefined
  messages = []
  pushMessage = (message) => { this.messages = [...this.messages, message]; tell() }
  popMessage = () => { this.messages = this.messages.slice(0, -1) }
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, this.snapshot(message))
    tell()
  }
  snapshot = (thing) => structuredClone(thing)
}
class Page extends AbstractChat {}

const state = new State()
const told = { connections: 0, broken: 0, refused: 0, ended_early: 0, ids: [] }
const text = () => state.messages.flatMap((m) => m.parts).filter((p) => p.type === "text").map((p) => p.text).join("")
const tell = () => { console.log(text().length) }
class Transport extends DefaultChatTransport {
  processResponseStream(stream) {
    const look = new TransformStream({
      transform(chunk, controller) {
        if (["finish", "abort", "error"].includes(chunk.type)) end = chunk.type
        controller.enqueue(chunk)
      },
    })
    return super.processResponseStream(stream).pipeThrough(look)
  }
}
const transport = new Transport({
  api: `${url}/v1/chat`,
  prepareReconnectToStreamRequest: ({ id }) => ({ api: `${url}/v1/chat/${id}/stream` }),
})
let end, ended
const page = new Page({ id, state, transport, onFinish: () => { ended = true } })

for (;;) {
  end = ended = undefined
  told.connections += 1
  await page.resumeStream()
  told.ids = [...new Set([...told.ids, ...state.messages.map((m) => m.id)])]
  if (page.status === "error") {
    told.broken += 1
    if (/Validation|UIMessageStream/.test(page.error.name)) told.refused += 1 // by the client, and not by the connection
  }
  else if (end) break
  else if (ended) told.ended_early += 1
  else if (state.messages.length) break // nothing is under way any more
  await new Promise((resolve) => setTimeout(resolve, 100))
}
console.log(JSON.stringify({ ...told, text: text(), messages: state.messages, end }))
