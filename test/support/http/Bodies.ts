import { assert } from "@effect/vitest"
import { type ChangeableName, memberNames, members } from "../../../src/domain/Credential.ts"
import type { Answer } from "./RawConnection.ts"

/** The smallest body that create accepts. */
export const minimal = { provider: "openai", key: "sk-0123456789-0123456789-AbCd" }

/** The id of no credential, workspace or account. */
export const unknownId = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"

/** The defaults of all optional members (section 4.1). */
export const defaults = Object.fromEntries(
  memberNames.flatMap((name) => ("default" in members[name] ? [[name, members[name].default]] : []))
) as { readonly [Name in ChangeableName]: (typeof members)[Name]["default"] }

/** A credential as the answer to create or get shows it. */
export const credentialIn = (answer: Partial<Answer> & Pick<Answer, "body">): Readonly<Record<string, unknown>> => {
  const { data } = JSON.parse(answer.body) as { readonly data: Readonly<Record<string, unknown>> }
  return data
}

/** The credential that create answered with, which must have been accepted. */
export const created = (answer: Answer) => {
  assert.strictEqual(answer.status, 201, answer.body)
  return credentialIn(answer)
}

/** The id of the credential that create answered with, which must have been accepted. */
export const createdId = (answer: Answer) => String(created(answer)["id"])

export const statusesOf = (answers: ReadonlyArray<Pick<Answer, "status">>) => answers.map(({ status }) => status)
