import { readFileSync } from "node:fs"
import autocannon from "autocannon"

const { connections, headers, keys, requests, seconds, url } = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8"))

const result = await autocannon({
  url,
  connections,
  duration: seconds,
  headers: { ...headers, authorization: `Bearer ${keys[0]}`, "content-type": "application/json" },
  requests
})
console.log(JSON.stringify(result))
