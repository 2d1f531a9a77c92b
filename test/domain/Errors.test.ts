import { Schema } from "effect"
import * as HttpErrors from "../../src/contract/HttpErrors.ts"
import * as DomainErrors from "../../src/domain/Errors.ts"
import { envelope, type Refusal, refusals } from "../support/http/Refusal.ts"
import { assert, describe, it } from "../support/it.ts"

const { fixedMessage: _, ...Errors } = { ...DomainErrors, ...HttpErrors }

const issues = [{ path: ["allowed_models", 3], message: "must be a string" }]

const cases = [
  ["InvalidParams", Errors.InvalidParams, Errors.InvalidParams.of(...issues)],
  ["MissingKey", Errors.Unauthorized, Errors.Unauthorized.missing()],
  ["InvalidKey", Errors.Unauthorized, Errors.Unauthorized.invalid()],
  ["Forbidden", Errors.Forbidden, new Errors.Forbidden()],
  ["NotFound", Errors.NotFound, new Errors.NotFound()],
  ["MethodNotAllowed", Errors.MethodNotAllowed, new Errors.MethodNotAllowed()],
  ["RequestTimeout", Errors.RequestTimeout, new Errors.RequestTimeout()],
  ["Conflict", Errors.Conflict, Errors.Conflict.reused()],
  ["CredentialDeleted", Errors.Conflict, Errors.Conflict.deleted()],
  ["StoredKeyUnreadable", Errors.StoredKeyUnreadable, new Errors.StoredKeyUnreadable()],
  ["PayloadTooLarge", Errors.PayloadTooLarge, new Errors.PayloadTooLarge()],
  ["ExpectationFailed", Errors.ExpectationFailed, new Errors.ExpectationFailed()],
  ["HeadersTooLarge", Errors.HeadersTooLarge, new Errors.HeadersTooLarge()],
  ["InternalError", Errors.InternalError, new Errors.InternalError()],
  ["ServiceUnavailable", Errors.ServiceUnavailable, new Errors.ServiceUnavailable()]
] as const

describe("an error (section 7)", () => {
  it("has a case in this test for each class and each refusal", () => {
    assert.sameMembers(Array.from<Refusal>(cases.map(([refusal]) => refusal)), Object.keys(refusals) as Array<Refusal>)
    assert.sameMembers(Array.from<unknown>(new Set<unknown>(cases.map(([, kind]) => kind))), Object.values(Errors))
  })

  it.for(cases)("%s encodes to its code and message, and decodes to the same class", ([refusal, kind, error]) => {
    const codec = kind as Schema.Codec<typeof error, unknown>
    const [code] = refusals[refusal]
    const written = Schema.encodeSync(codec)(error)
    assert.strictEqual(JSON.stringify(written), envelope(refusal, refusal === "InvalidParams" ? { issues } : undefined))
    const read = Schema.decodeUnknownSync(codec)(written)
    assert.isTrue(read instanceof kind)
    assert.deepStrictEqual(read.error, error.error)
    assert.strictEqual(kind.ast.annotations?.["httpApiStatus"], code)
    assert.deepStrictEqual([error._tag, error.name], [kind.identifier, kind.identifier])
    assert.strictEqual(Errors[kind.identifier as keyof typeof Errors], kind)
  })

  it.for([
    ["no metadata", undefined],
    ["no issues", {}],
    ["an issue without a path", { issues: [{ message: "must be a string" }] }],
    ["an issue without a message", { issues: [{ path: [] }] }],
    ["a path of something else", { issues: [{ path: [true], message: "must be a string" }] }]
  ] as const)("InvalidParams does not decode with %s", ([, metadata]) => {
    const [code, message] = refusals.InvalidParams
    const read = Schema.decodeUnknownSync(Errors.InvalidParams)
    assert.doesNotThrow(() => read({ error: { code, message, metadata: { issues } } }))
    assert.throws(() => read({ error: { code, message, metadata } }))
  })
})
