// The public suite for servers of the Durable Streams protocol, against the server at DS_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.DS_URL })
