import { timingSafeEqual } from "node:crypto"
import type { AccountId, ApiKeyHash, CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { cooldownAt } from "../../domain/routing/Health.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { Past, Tried } from "../../domain/routing/Past.ts"
import { type AttemptMac, macLength } from "../../port/AttemptMac.ts"
import type { AttemptedKey } from "./NextAttempt.ts"

/** An attempt as its text records it: everything that its report needs, on any instance. Holds no key and no label. */
export interface RecordedAttempt {
  readonly request_id: string
  readonly account_id: AccountId
  /** The caller's API key; null if its request named none. */
  readonly api_key_hash: ApiKeyHash | null
  readonly provider: Provider
  /** Undefined for shared capacity. */
  readonly key: AttemptedKey | undefined
  /** In the database's time, in milliseconds since 1970. */
  readonly handed_out_at: number
  /** The earlier attempts of the request. */
  readonly past: Past
}

/** The form of the rest of a text. An instance refuses a form that it does not know. */
const version = 1

const resultCodes = {
  Succeeded: "s",
  RateLimited: "l",
  QuotaExhausted: "q",
  Rejected: "r",
  Forbidden: "f",
  NotServed: "n",
  UpstreamFailed: "u",
  RequestRefused: "b",
  Abandoned: "a"
} as const satisfies Record<Outcome["_tag"], string>
const resultsByCode: ReadonlyMap<string, Outcome["_tag"]> = new Map(
  Object.entries(resultCodes).map(([result, code]) => [code, result as Outcome["_tag"]])
)

/** A UUID in 22 characters, because a past may name thousands. */
const shorten = (id: string) => Buffer.from(id.replaceAll("-", ""), "hex").toString("base64url")
const lengthen = (short: string) =>
  Buffer.from(short, "base64url")
    .toString("hex")
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") as CredentialId

type Marks = readonly [epoch: number, strikes: number]
type KeyFields = readonly [id: string, model: string, key_version: number, whole: Marks, model: Marks]
type TriedFields = readonly [provider: number, result: string, id?: string]
type Fields = readonly [
  version: number,
  request_id: string,
  account_id: AccountId,
  /** The provider of the attempt, and then those of the past, which names them by index. */
  providers: ReadonlyArray<Provider>,
  handed_out_at: number,
  key: KeyFields | null,
  past: ReadonlyArray<TriedFields>,
  /** In base64url. */
  api_key_hash?: string
]

const marksOf = ({ epoch, strikes }: { readonly epoch: number; readonly strikes: number }): Marks => [epoch, strikes]

const fieldsOf = ({ api_key_hash, key, past, provider, ...attempt }: RecordedAttempt): Fields => {
  const { account_id, handed_out_at, request_id } = attempt
  const providers = Array.from(new Set([provider, ...past.map((one) => one.provider)]))
  const keyFields = ({ health, terms }: AttemptedKey): KeyFields => [
    shorten(terms.credential_id),
    terms.model,
    terms.key_version,
    marksOf(health.whole),
    marksOf(health.model)
  ]
  const tried = past.flatMap(({ credential_id, provider, result }): ReadonlyArray<TriedFields> => {
    const code = Object.hasOwn(resultCodes, result) ? resultCodes[result as Outcome["_tag"]] : undefined
    if (code === undefined) return []
    const n = providers.indexOf(provider)
    return [credential_id === null ? [n, code] : [n, code, shorten(credential_id)]]
  })
  const attempted = key === undefined ? null : keyFields(key)
  const fields = [version, request_id, account_id, providers, handed_out_at, attempted, tried] as const
  return api_key_hash === null ? fields : [...fields, Buffer.from(api_key_hash, "hex").toString("base64url")]
}

const recordOf = ([, request_id, account_id, providers, handed_out_at, key, past, hash]: Fields): RecordedAttempt => {
  const provider = providers[0] as Provider
  const keyOf = ([id, model, key_version, whole, ofModel]: KeyFields): AttemptedKey => ({
    terms: { request_id, account_id, credential_id: lengthen(id), model, key_version, provider },
    health: {
      whole: cooldownAt(key_version, { epoch: whole[0], strikes: whole[1] }),
      model: cooldownAt(key_version, { epoch: ofModel[0], strikes: ofModel[1] })
    }
  })
  return {
    request_id,
    account_id,
    api_key_hash: hash === undefined ? null : (Buffer.from(hash, "base64url").toString("hex") as ApiKeyHash),
    provider,
    handed_out_at,
    key: key === null ? undefined : keyOf(key),
    past: past.map(([n, code, id]): Tried => ({
      provider: providers[n] as Provider,
      credential_id: id === undefined ? null : lengthen(id),
      result: resultsByCode.get(code) ?? "Abandoned"
    }))
  }
}

/** The text of an attempt: its MAC, the id of the MAC's KEK in a line, and its fields in JSON, as base64url. */
export const encodeAttempt = ({ kekId, macOf }: AttemptMac["Service"], attempt: RecordedAttempt): string => {
  const kek_id = kekId()
  const signed = Buffer.from(`${kek_id}\n${JSON.stringify(fieldsOf(attempt))}`)
  const mac = macOf(kek_id, signed)
  if (mac === undefined) throw new Error("The primary key is not in the keyring")
  return Buffer.concat([mac, signed]).toString("base64url")
}

/** Decodes the text of an attempt; undefined unless an instance of byok made exactly this text. */
export const decodeAttempt = ({ macOf }: AttemptMac["Service"], text: string): RecordedAttempt | undefined => {
  const bytes = Buffer.from(text, "base64url")
  const [mac, signed] = [bytes.subarray(0, macLength), bytes.subarray(macLength)]
  const end = signed.indexOf("\n")
  if (end < 1 || bytes.toString("base64url") !== text) return undefined
  const expected = macOf(signed.toString("utf8", 0, end), signed)
  if (expected === undefined || !timingSafeEqual(mac, expected)) return undefined
  const fields = JSON.parse(signed.toString("utf8", end)) as Fields
  return fields[0] === version ? recordOf(fields) : undefined
}
