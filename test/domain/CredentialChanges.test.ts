import { Arbitrary, DateTime, Effect, Exit, Redacted, Result, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { changeCredential, CredentialChanges, decodeCredentialChanges } from "../../src/domain/CredentialChanges.ts"
import { AccountId, CredentialId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { type Issue, issuesOf } from "../../src/domain/Issue.ts"
import { readKeyMaterial } from "../../src/domain/KeyMaterial.ts"
import { labelOf } from "../../src/domain/labelOf.js"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import {
  acceptedBody,
  changesBody,
  elementOf,
  givenKey,
  inTwoParts,
  json,
  text
} from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const decode = Schema.decodeUnknownSync(CredentialChanges)
const encode = Schema.encodeSync(Credential)

const issues = (body: unknown) =>
  Effect.runSync(
    Effect.match(decodeCredentialChanges(body), {
      onFailure: ({ error }) => error.metadata.issues.map(({ message, path }) => `${path.join(".")}: ${message}`),
      onSuccess: () => []
    })
  )

describe("the body of an update", () => {
  it("may be empty and gets no defaults", () => {
    assert.deepStrictEqual(Object.keys(decode({})), [])
    assert.deepStrictEqual(Object.keys(decode({ name: null })), ["name"])
  })

  it("ignores unknown members beside known ones (L1, D13)", () => {
    assert.deepStrictEqual(Object.keys(decode({ added_later: [1], disabled: true })), ["disabled"])
    assert.deepStrictEqual(Object.keys(decode({ added_later: [1], sort_order: 0 })), ["sort_order"])
  })

  it.for(['{"frozen":true}', '{"secret":"k","":0}', '{"__proto__":{"name":"x"}}', '{"constructor":1}'])(
    "is refused if it has only unknown members: %s (D47)",
    (body) => {
      assert.deepStrictEqual(issues(JSON.parse(body)), [
        ": must have a member that can be changed: key, name, disabled, is_fallback, is_required, is_byok_only, allowed_api_key_hashes, allowed_models, allowed_user_ids, declared_region, declared_zdr"
      ])
    }
  )

  it.for([
    ['{"name":"n","disable":true}', "disable", "disabled"],
    ['{"isByokOnly":true}', "isByokOnly", "is_byok_only"],
    ['{"Key":"k"}', "Key", "key"],
    ['{"sort_oder":1}', "sort_oder", "sort_order"]
  ])("is refused if an unknown member is close to a known one: %s (L1, D13)", ([body = "", name, nearest]) => {
    assert.deepStrictEqual(issues(JSON.parse(body)), [`${name}: unknown member; the nearest is ${nearest}`])
  })

  it("is refused if it is not an object (D8)", () => {
    for (const body of [null, 1, "x", []]) assert.deepStrictEqual(issues(body), [": must be a JSON object"])
  })

  it("does not show the key when written as JSON, whether accepted or refused (T4)", () => {
    const decoded = decode({ key: "canary-of-a-key" })
    assert.notInclude(JSON.stringify(decoded), "canary")
    assert.isTrue(Redacted.isRedacted(decoded.key))
    const exit = Effect.runSyncExit(decodeCredentialChanges({ key: "canary\0" }))
    assert.isTrue(Exit.isFailure(exit))
    assert.notInclude(JSON.stringify(exit), "canary")
  })
})

type Body = Readonly<Record<string, unknown>>
type Change = typeof changeCredential

const decodeNew = Schema.decodeUnknownResult(NewCredential, { errors: "all" })
const decodeChanges = Schema.decodeUnknownSync(CredentialChanges)
const uuid = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const account_id = AccountId.make(uuid)

/** A stored credential and its key. */
interface Held {
  readonly credential: Credential
  readonly key: string
}

/** The credential that create makes of a body, or its issues. */
const created = (body: Body): Result.Result<Held, ReadonlyArray<Issue>> =>
  decodeNew(body).pipe(
    Result.mapError(({ issue }) => issuesOf(issue)),
    Result.map(({ key, material: { region, labelSource }, workspace_id: _, ...fields }) => {
      return {
        key: Redacted.value(key),
        credential: {
          ...fields,
          id: CredentialId.make(uuid),
          workspace_id: WorkspaceId.make(uuid),
          label: labelOf(Redacted.value(labelSource)),
          created_at: DateTime.makeUnsafe(0),
          declared_region: fields.declared_region ?? region,
          sort_order: 0
        }
      }
    })
  )
const create = (body: Body) => Result.getOrThrow(created(body))

/** Issues but those of flags, which an update may report elsewhere (L5). */
const apartFromFlags = (issues: ReadonlyArray<Issue>) =>
  JSON.stringify(issues.filter(({ message }) => !message.startsWith("cannot be combined with")))

/** The credential after an update as the service performs it, or the issues. */
const updated = (change: Change, { credential, key }: Held, body: Body) => {
  const changes = decodeChanges(body)
  const isSameKey = changes.key !== undefined && Redacted.value(changes.key) === key
  const { region: storedRegion } = Result.getOrThrow(readKeyMaterial(credential.provider, Redacted.make(key)))
  const facts = changes.key === undefined ? { storedRegion } : { isSameKey }
  return Result.map(change(credential, changes, facts), (changed) => ({
    ...changed,
    key: changes.key === undefined ? key : Redacted.value(changes.key)
  }))
}

const sameHeld = (one: Held, other: Held) =>
  one.key === other.key && JSON.stringify(sorted(one.credential)) === JSON.stringify(sorted(other.credential))
const sorted = (credential: Credential) =>
  Object.entries(credential).toSorted(([one], [other]) => (one < other ? -1 : 1))

/** The body with which create would make the credential as an update leaves it. */
const mergedBody = ({ credential, key }: Held, body: Body): Body => {
  const takesMaterial = credential.provider === "openai" || credential.provider === "fireworks"
  const isNew = body["key"] !== undefined && body["key"] !== key
  const { created_at: _, id: __, label: ___, sort_order: ____, workspace_id: _____, ...members } = credential
  return { ...members, key, ...(takesMaterial && isNew ? { declared_region: null } : {}), ...body }
}

interface Case {
  readonly stored: Held
  readonly body: Body
  readonly parts: readonly [Body, Body]
}
const cases: Arbitrary.Arbitrary<Case> = Arbitrary.map(
  Arbitrary.all({
    first: acceptedBody(givenKey),
    body: changesBody,
    repeatsKey: elementOf([true, false, false]),
    inFirst: Arbitrary.array(elementOf([true, false]), { minLength: 11, maxLength: 11 })
  }),
  ({ body, first, inFirst, repeatsKey }) => {
    const given = repeatsKey ? { ...body, key: first["key"] } : body
    return { stored: create(first), body: given, parts: inTwoParts(given, inFirst) }
  }
)

type Law = (change: Change, given: Case) => boolean

const mergesAsCreate: Law = (change, { body, stored }) => {
  const expected = created(mergedBody(stored, body))
  const result = updated(change, stored, body)
  if (Result.isSuccess(expected)) return Result.isSuccess(result) && sameHeld(result.success, expected.success)
  return (
    Result.isFailure(result) &&
    result.failure.length === expected.failure.length &&
    apartFromFlags(result.failure) === apartFromFlags(expected.failure)
  )
}

const isIdempotent: Law = (change, { body, stored }) => {
  const once = updated(change, stored, body)
  if (Result.isFailure(once)) return true
  const twice = updated(change, once.success, body)
  return (
    Result.isSuccess(twice) &&
    twice.success.fields.length === 0 &&
    !twice.success.mustSeal &&
    sameHeld(twice.success, once.success)
  )
}

const commutes: Law = (change, { parts: [one, other], stored }) => {
  const inOrder = (first: Body, second: Body) =>
    Result.flatMap(updated(change, stored, first), (held) => updated(change, held, second))
  const [forwards, backwards] = [inOrder(one, other), inOrder(other, one)]
  if (Result.isFailure(forwards) || Result.isFailure(backwards)) return true
  const together = updated(change, stored, { ...one, ...other })
  return (
    sameHeld(forwards.success, backwards.success) &&
    Result.isSuccess(together) &&
    sameHeld(together.success, forwards.success)
  )
}

const namesWhatDiffers: Law = (change, { body, stored }) => {
  const result = updated(change, stored, body)
  if (Result.isFailure(result)) return true
  const { credential, fields, key, mustSeal } = result.success
  const differs = (member: keyof Credential) =>
    JSON.stringify(credential[member]) !== JSON.stringify(stored.credential[member])
  const members = (Object.keys(stored.credential) as Array<keyof Credential>).filter(differs)
  const expected = [...members.filter((member) => member !== "label"), ...(key === stored.key ? [] : ["key"])]
  const context = (one: Credential) => contextOf({ ...one, account_id })
  return (
    expected.toSorted().join() === [...fields].toSorted().join() &&
    (members.includes("label") ? key !== stored.key : true) &&
    mustSeal === (context(credential) !== context(stored.credential) || key !== stored.key)
  )
}

const laws: ReadonlyArray<readonly [string, Law]> = [
  [
    "an update equals a create of the merged members, and is refused for the same reasons (L5, L10, D28, D29, D30)",
    mergesAsCreate
  ],
  ["applying the same changes twice equals applying them once (L6)", isIdempotent],
  ["changes of different members commute if both orders are allowed (L9)", commutes],
  [
    "the changed fields are named, and the key is resealed if and only if it or its context changes (L6, L8)",
    namesWhatDiffers
  ]
]

describe("changes of a credential", () => {
  it.prop(
    `obey every law: ${laws.map(([law]) => law).join("; ")}`,
    [cases],
    ([given]) => {
      for (const [name, law] of laws) assert.isTrue(law(changeCredential, given), name)
    },
    { arbitrary: { runs: 600 } }
  )

  const broken: ReadonlyArray<readonly [string, Law, Change]> = [
    [
      "ignores the rules for flags",
      mergesAsCreate,
      (stored, changes, known) => {
        const { is_byok_only, is_fallback, is_required, ...rest } = changes
        const flags = { is_byok_only, is_fallback, is_required }
        const given = Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined))
        return Result.map(changeCredential(stored, rest, known), (changed) => ({
          ...changed,
          credential: { ...changed.credential, ...given }
        }))
      }
    ],
    [
      "keeps the region of the old key",
      mergesAsCreate,
      (stored, changes, known) =>
        Result.map(changeCredential(stored, changes, known), (changed) => ({
          ...changed,
          credential: {
            ...changed.credential,
            ...(changes.declared_region === undefined ? { declared_region: stored.declared_region } : {})
          }
        }))
    ],
    [
      "treats null as omitted",
      mergesAsCreate,
      (stored, changes, known) =>
        changeCredential(
          stored,
          Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== null)),
          known
        )
    ],
    [
      "treats every key as a new one",
      isIdempotent,
      (stored, changes, facts) => changeCredential(stored, changes, { ...facts, isSameKey: false })
    ],
    [
      "changes a member that the body omits",
      commutes,
      (stored, changes, known) =>
        Result.map(changeCredential(stored, changes, known), (changed) => ({
          ...changed,
          credential: { ...changed.credential, name: `${stored.name ?? ""}${Object.keys(changes).join()}` }
        }))
    ],
    [
      "reseals only for a new key",
      namesWhatDiffers,
      (stored, changes, known) =>
        Result.map(changeCredential(stored, changes, known), (changed) => ({
          ...changed,
          mustSeal: changed.fields.includes("key")
        }))
    ]
  ]

  it.each(broken)("break a law if the code %s (control)", async (_name, law, change) => {
    const checked = await Effect.runPromise(
      Arbitrary.checkEffect(cases, (given) => Effect.sync(() => law(change, given)), { runs: 600, maxShrinks: 0 })
    )
    assert.strictEqual(checked._tag, "Falsified")
  })
})

const refusalOf = (stored: Body, body: Body) => {
  const result = updated(changeCredential, create(stored), body)
  return Result.isSuccess(result) ? [] : result.failure.map(({ message, path }) => `${path.join(".")}: ${message}`)
}

describe("a member that cannot change (D47)", () => {
  const body = { provider: "cohere", key: "fake-key" }
  const shown = encode(create(body).credential)
  const fixed = ["id", "provider", "workspace_id", "label", "created_at", "sort_order"] as const

  it("may be sent with its current value, alone or with all others", () => {
    assert.deepStrictEqual(refusalOf(body, shown), [])
    for (const member of fixed) assert.deepStrictEqual(refusalOf(body, { [member]: shown[member] }), [])
  })

  it.prop("is refused with any other value", [elementOf(fixed), json(text(0, 20))], ([member, value]) => {
    if (value === shown[member]) return
    assert.deepStrictEqual(refusalOf(body, { [member]: value, disabled: true }), [`${member}: cannot be changed`])
  })
})

describe("an update of flags, checked together with the stored flags (L5, D31)", () => {
  const plain = { provider: "cohere", key: "fake-key" }
  const withFallback = "cannot be combined with is_fallback"
  it.for<readonly [body: Body, expected: ReadonlyArray<string>]>([
    [{ is_fallback: true, is_byok_only: true }, [`is_byok_only: ${withFallback}`]],
    [
      { is_fallback: true, is_byok_only: true, is_required: true },
      [`is_byok_only: ${withFallback}`, `is_required: ${withFallback}`]
    ]
  ])("is refused if it sets %j where no flag is stored: %j", ([body, expected]) => {
    assert.deepStrictEqual(refusalOf(plain, body), expected)
  })

  it.for<readonly [stored: Body, body: Body, expected: ReadonlyArray<string>]>([
    [{ is_fallback: true }, { is_byok_only: true }, [`is_byok_only: ${withFallback}`]],
    [{ is_fallback: true }, { is_required: true, is_byok_only: false }, [`is_required: ${withFallback}`]],
    [{ is_byok_only: true }, { is_fallback: true }, ["is_fallback: cannot be combined with is_byok_only"]],
    [{ is_required: true }, { is_fallback: true }, ["is_fallback: cannot be combined with is_required"]],
    [
      { is_required: true, is_byok_only: true },
      { is_fallback: true, is_byok_only: true },
      [`is_byok_only: ${withFallback}`, "is_fallback: cannot be combined with is_required"]
    ]
  ])("is refused, at the flags that it sets, if %j is stored and it sets %j: %j", ([stored, body, expected]) => {
    assert.deepStrictEqual(refusalOf({ ...plain, ...stored }, body), expected)
  })

  it.for<readonly [stored: Body, body: Body]>([
    [{ is_byok_only: true }, { is_fallback: true, is_byok_only: false }],
    [{ is_fallback: true }, { is_fallback: false, is_required: true }]
  ])("is accepted if %j is stored and it sets %j, which ends the conflict", ([stored, body]) => {
    assert.deepStrictEqual(refusalOf({ ...plain, ...stored }, body), [])
  })
})

describe("a credential whose provider this version does not know (F4)", () => {
  it("can be updated like one whose keys carry no region", () => {
    const { credential, key } = create({ provider: "cohere", key: "fake-key" })
    const stored = { key, credential: { ...credential, provider: "added-later" } }
    const result = updated(changeCredential, stored, { disabled: true, key: "{", declared_region: "global" })
    assert(Result.isSuccess(result))
    assert.deepStrictEqual([...result.success.fields].toSorted(), ["declared_region", "disabled", "key"])
  })
})
