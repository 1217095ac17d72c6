// Feeds streams out of a file to the public clients of AG-UI and of the AI SDK: what they refuse, and what they show.
import { readFileSync, writeFileSync } from "node:fs"
import { AbstractAgent } from "@ag-ui/client"
import { readUIMessageStream, uiMessageChunkSchema } from "ai"
import { from } from "rxjs"

const [given, made] = process.argv.slice(2)
console.error = console.warn = console.debug = () => {}

class Replaying extends AbstractAgent {
  run() { return from(this.events) }
}

async function agui(streams) {
  const agent = new Replaying({ threadId: "c" })
  for (const events of streams) {
    agent.events = structuredClone(events)
    await agent.runAgent()
  }
  const of = (role) => agent.messages.filter((m) => m.role === role).map((m) => m.content ?? "").join("")
  const calls = agent.messages.flatMap((m) => m.toolCalls ?? []).map((c) => [c.id, c.function.arguments])
  return { text: of("assistant"), reasoning: of("reasoning"), calls }
}

async function chat(chunks) {
  const schema = uiMessageChunkSchema()
  for (const chunk of chunks) {
    const told = await schema.validate(chunk)
    if (!told.success) throw told.error
  }
  let message = { parts: [] }
  const stream = new ReadableStream({
    start(controller) { chunks.forEach((chunk) => controller.enqueue(chunk)); controller.close() },
  })
  let refused
  for await (const one of readUIMessageStream({ stream, onError: (error) => { refused ??= error } })) message = one
  if (refused && !chunks.some((chunk) => chunk.type === "error")) throw refused
  const of = (type) => message.parts.filter((p) => p.type === type).map((p) => p.text).join("")
  return { text: of("text"), reasoning: of("reasoning") }
}

const told = []
for (const { name, followed, late, chunks } of JSON.parse(readFileSync(given))) {
  const found = { name }
  for (const [client, job] of [["same", () => agui([followed, late])], ["fresh", () => agui([late])], ["page", () => chat(chunks)]]) {
    try { found[client] = await job() } catch (error) { found[client] = { refused: String(error).slice(0, 500) } }
  }
  told.push(found)
}
writeFileSync(made, JSON.stringify(told))
