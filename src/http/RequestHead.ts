import { randomUUID } from "node:crypto"
import type { IncomingMessage } from "node:http"

/** The id in the client's header if it is 1 to 128 characters of `[A-Za-z0-9._-]`, else a new one (D12). */
export const requestIdOf = (header: string | ReadonlyArray<string> | undefined): string =>
  typeof header === "string" && /^[A-Za-z0-9._-]{1,128}$/.test(header) ? header : randomUUID()

/** Whether a header was sent more than once. Node joins the values with a comma, so the raw headers decide. */
export const isRepeated = (
  { headers, rawHeaders }: Pick<IncomingMessage, "headers" | "rawHeaders">,
  header: string
): boolean =>
  headers[header]?.includes(",") === true &&
  rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === header).length > 1
