// The public conformance suite of the Durable Streams protocol, against a running server.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"
runConformanceTests({ baseUrl: process.env.STREAMS_URL })
