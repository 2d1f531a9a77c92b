import { parseJson } from "../../KeyMaterial.ts"

/** Characters of an error's body that are read. */
export const maxBody = 8192

/** The error in the body of an upstream's answer, as far as byok reads it. */
export interface UpstreamError {
  /** The values of the members that name an error, as they are, the most telling first. */
  readonly codes: ReadonlyArray<string>
  /**
   * Texts for people. They may repeat the request, so they are compared from their first character on, and never
   * stored, logged or answered.
   */
  readonly messages: ReadonlyArray<string>
  /** The time or delay to wait for that the body names, or null. */
  readonly retry_after: string | null
  /** Whether the body says that it is an error. After a success it counts only then. */
  readonly isExplicit: boolean
}

type Members = Readonly<Record<string, unknown>>

const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The data of the first event of a stream, or else the text. */
const dataOf = (body: string) => /^(?:event:.*\r?\n)?data: ?(.*)/.exec(body)?.[1] ?? body

/** The members whose value names an error, the most telling first, and those with a text for people. */
const codeMembers = ["code", "type", "status", "reason", "error_code", "__type", "status_code"]
const textMembers = ["message", "error", "detail", "error_description", "status_msg"]

const isText = (value: unknown): value is string => typeof value === "string"

/** A code is a text or a number. AWS writes the namespace of a code before `#`. */
const codesIn = (place: Members) =>
  codeMembers
    .map((name) => place[name])
    .filter((value) => isText(value) || typeof value === "number")
    .map((value) => String(value).replace(/^.*#/, ""))

const textsIn = (place: Members) => textMembers.map((name) => place[name]).filter(isText)

/** The members of a value, or of each object of a list. */
const placesIn = (value: unknown): ReadonlyArray<Members> => [value].flat().filter(isMembers)

/** Whether a member `error` names one: some successes have it empty or false. */
const isNamed = (error: unknown) => (isText(error) ? error !== "" : isMembers(error) && Object.keys(error).length > 0)

/**
 * Reads the error in the body of an answer: an object, or a list of one, whose members name the error, or a member
 * `error`, `errors`, `detail` or `base_resp` does; or a text. Undefined if the body is not JSON, or something else.
 */
export const upstreamErrorIn = (body: string | null): UpstreamError | undefined => {
  if (body === null) return undefined
  const [first] = [parseJson(dataOf(body.slice(0, maxBody)))].flat()
  const top = isText(first) ? { message: first } : first
  if (!isMembers(top)) return undefined
  const inner = ["error", "errors", "detail", "base_resp"].flatMap((name) => placesIn(top[name]))
  const details = inner.flatMap((place) => placesIn(place["details"]))
  const places = [...inner, ...details, top]
  const baseStatus = isMembers(top["base_resp"]) ? top["base_resp"]["status_code"] : 0
  return {
    codes: places.flatMap(codesIn),
    messages: places.flatMap(textsIn),
    retry_after: details.map(({ retryDelay }) => retryDelay).find(isText) ?? null,
    isExplicit: isNamed(top["error"]) || top["type"] === "error" || Number(baseStatus) !== 0
  }
}
