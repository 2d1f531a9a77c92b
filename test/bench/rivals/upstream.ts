import { createServer } from "node:http"

const content = "An answer of about a thousand bytes. ".repeat(20)
const answer = JSON.stringify({
  ...{ id: "chatcmpl-0123456789", object: "chat.completion", created: 1_795_600_000, model: "openai/gpt-4o" },
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
  usage: { prompt_tokens: 200, completion_tokens: 200, total_tokens: 400 }
})

/** A provider that answers every chat request that brings a key. */
createServer((request, response) => {
  request.resume().once("end", () => {
    const status = request.headers.authorization?.startsWith("Bearer sk-") === true ? 200 : 401
    response.writeHead(status, { "content-type": "application/json", "content-length": answer.length }).end(answer)
  })
}).listen(Number(process.argv[2]), "127.0.0.1")
