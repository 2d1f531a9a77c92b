import type { DatabaseFailure } from "./DatabaseFailure.ts"

/** Nobody is there, or nobody yet: PostgreSQL starts or stops, a pooler has no connection, a name is not known so far. */
const passing =
  /^(ECONNREFUSED|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|08...|57P0[123])$/

const otherAuthorities = "; DATABASE_CA_FILE names other authorities"

/** Faults that stay until somebody mends them, by what a failure's message ends with. */
const lasting: ReadonlyArray<readonly [failure: RegExp, fault: string, hint?: string]> = [
  [/^AuthenticationError\b/, "user or password is refused"],
  [/ 3D000$/, "there is no such database"],
  [/ 42501$/, "the user lacks a permission"],
  [/^TlsDeclined$/, "the database does not speak TLS"],
  [/ ERR_TLS_CERT_ALTNAME_INVALID$/, "its certificate is for another host"],
  [
    / (\w*SELF_SIGNED_CERT\w*|UNABLE_TO_\w+|CERT_UNTRUSTED|INVALID_CA)$/,
    "its certificate is not trusted",
    otherAuthorities
  ],
  [/ CERT_\w+$/, "its certificate is not valid"]
]

/** Whether the next attempt may succeed without anybody's help. */
export const mayPass = ({ sqlstate = "" }: DatabaseFailure): boolean => passing.test(sqlstate)

/** Says why the database that is called `name` cannot be used, and nothing about where it is. */
export const sentenceOn = (name: string, failure: DatabaseFailure, seconds: number): string => {
  const { message, sqlstate } = failure
  const code = sqlstate === undefined ? "" : ` (${sqlstate})`
  if (mayPass(failure)) return `${name} cannot be reached${code}, tried for ${seconds} seconds.`
  const [, fault, hint = ""] = lasting.find(([pattern]) => pattern.test(message)) ?? []
  return fault === undefined ? `${name} cannot be used: ${message}.` : `${name}: ${fault}${code}${hint}.`
}
