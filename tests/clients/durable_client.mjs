// The public client of the Durable Streams protocol: `write COUNT` numbers, or `sse`/`long-poll COUNT` and print each that comes.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const [mode, count] = [process.argv[2], Number(process.argv[3])]
const url = process.env.DS_URL
const backoffOptions = { initialDelay: 20, maxDelay: 200, multiplier: 1.3, maxRetries: Infinity }

if (mode === "write") {
  const handle = new DurableStream({ url, contentType: "application/json", backoffOptions })
  const failed = []
  const producer = new IdempotentProducer(handle, "writer", {
    onError: (error) => failed.push(error),
    fetch: async (...given) => {
      for (;;) {
        try {
          return await fetch(...given)
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 50))
        }
      }
    },
  })
  for (let n = 0; n < count; n++) {
    producer.append(JSON.stringify({ n }))
    if (n % 5 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
  }
  await producer.flush()
  console.log(JSON.stringify({ failed: failed.map(String) }))
  process.exit(0)
}

const seen = []
let offset = "-1"
for (;;) {
  try {
    const response = await stream({ url, offset, live: mode, json: true, backoffOptions })
    response.subscribeJson(async (batch) => {
      for (const { n } of batch.items) seen.push(n)
      offset = batch.offset
      if (seen.length >= count) {
        console.log(JSON.stringify({ seen }))
        process.exit(0)
      }
    })
    await response.closed
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 50)) // it was cut off, and goes on from where it was
  }
}
