import autocannon from "autocannon"

const { body, connections, key, operation, paths, seconds, url } = JSON.parse(process.argv[2] ?? "{}")

const result = await autocannon({
  url,
  connections,
  duration: seconds,
  method: operation === "get" ? "GET" : "POST",
  headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
  ...(operation === "get" ? {} : { body }),
  requests: paths.map((/** @type {string} */ path) => ({ path }))
})
console.log(JSON.stringify(result))
