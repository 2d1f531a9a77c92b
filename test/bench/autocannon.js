import autocannon from "autocannon"

const { connections, key, requests, seconds, url } = JSON.parse(process.argv[2] ?? "{}")

const result = await autocannon({
  url,
  connections,
  duration: seconds,
  headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
  requests
})
console.log(JSON.stringify(result))
