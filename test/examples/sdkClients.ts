import Anthropic from "@anthropic-ai/sdk"
import OpenAI from "openai"

/** The words that a provider streams, read by the SDK of OpenAI. */
export const readOpenAI = async (url: string, apiKey: string) => {
  const client = new OpenAI({ apiKey, baseURL: `${url}/v1` })
  const messages = [{ role: "user" as const, content: "Count" }]
  const chunks = await client.chat.completions.create({ model: "a/model", messages, stream: true })
  const texts: Array<string> = []
  for await (const { choices } of chunks) texts.push(choices[0]?.delta.content ?? "")
  return texts
}

/** The same by the SDK of Anthropic. */
export const readAnthropic = async (baseURL: string, apiKey: string) => {
  const client = new Anthropic({ apiKey, baseURL })
  const messages = [{ role: "user" as const, content: "Count" }]
  const events = await client.messages.create({ model: "a/model", max_tokens: 9, messages, stream: true })
  const texts: Array<string> = []
  for await (const event of events) {
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") texts.push(event.delta.text)
  }
  return texts
}
