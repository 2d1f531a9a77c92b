import { Arbitrary, DateTime, Redacted, Schema } from "effect"
import type { Credential } from "../../../src/domain/Credential.ts"
import { ChangeableField } from "../../../src/domain/CredentialChanges.ts"
import { keyFaultIn } from "../../../src/domain/keyFault.js"
import { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { Provider, signsTokens } from "../../../src/domain/Provider.ts"
import { Region } from "../../../src/domain/Region.ts"
import type { UnstoredCredential } from "../../../src/port/CredentialRepository.ts"
import { defaults } from "../http/Bodies.ts"
import type { SealedKey, BoundCredential } from "../../../src/domain/SealedKey.ts"

type Arbitrary<A> = Arbitrary.Arbitrary<A>

export const integer = (minimum: number, maximum: number): Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))

const boolean: Arbitrary<boolean> = Arbitrary.schema(Schema.Boolean)

/** One of the arbitraries, each as likely as the others. */
export const oneOf = <A>(...choices: readonly [Arbitrary<A>, ...ReadonlyArray<Arbitrary<A>>]): Arbitrary<A> =>
  Arbitrary.flatMap(integer(0, choices.length - 1), (index) => choices[index] ?? choices[0])

/** One of the values. */
export const elementOf = <A>(values: ReadonlyArray<A>): Arbitrary<A> =>
  Arbitrary.map(integer(0, values.length - 1), (index) => values[index] as A)

const nullOr = <A>(arbitrary: Arbitrary<A>): Arbitrary<A | null> =>
  oneOf<A | null>(Arbitrary.Constant(null), arbitrary, arbitrary)

const repeated = <A>(item: Arbitrary<A>, minimum: number, maximum: number): Arbitrary<Array<A>> =>
  Arbitrary.flatMap(integer(minimum, maximum), (length) =>
    Arbitrary.array(item, { minLength: length, maxLength: length })
  )

const joined = (characters: Arbitrary<string>, minimum: number, maximum: number): Arbitrary<string> =>
  Arbitrary.map(repeated(characters, minimum, maximum), (parts) => parts.join(""))

const ascii = Arbitrary.map(integer(0x20, 0x7e), (code) => String.fromCharCode(code))

/** Characters that a careless program trims, escapes, normalises, splits or cuts in two. */
const peculiarities = Array.from(
  "\t\n\r\b\u0001\u007f\u00a0\u00e9\u0301\u00df\u0130\u4e2d\u202e\u200d\u2028\ufeff\ufffd\uffff\u{1f600}\u{10ffff}\"\\'%$`{},"
)
const peculiar = elementOf(peculiarities)
const peculiarInKeys = elementOf(peculiarities.filter((character) => !/[\p{Cc}\p{Cf}]/u.test(character)))

/** What no field may contain (D25). */
const unstorable = elementOf(["\0", "\ud800", "\udfff"])

/** Any text that can be stored: everything but U+0000 and half a surrogate pair (D25). */
export const text = (minimum: number, maximum: number): Arbitrary<string> =>
  joined(oneOf(ascii, ascii, peculiar), minimum, maximum)

/** Text that a key may contain if it is not JSON: no control and no format characters (D45). */
const keyText = (minimum: number, maximum: number): Arbitrary<string> =>
  joined(oneOf(ascii, ascii, peculiarInKeys), minimum, maximum)

/** Any JavaScript string at all. */
export const anyString: Arbitrary<string> = joined(oneOf(ascii, peculiar, unstorable), 0, 40)

const base62 = elementOf(Array.from("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))

/** Text that appears nowhere by chance, not even a part of it. */
export const canary: Arbitrary<string> = joined(base62, 24, 48)

const keyEnd = oneOf(base62, elementOf(Array.from("{}[]%$\\é中\u{1f600}")))

/** A key that create accepts: any text but control and format characters between ends that are no quotes (D45). */
export const givenKey: Arbitrary<string> = Arbitrary.filter(
  Arbitrary.map(
    Arbitrary.all({ first: keyEnd, inside: keyText(0, 58), last: keyEnd, single: integer(0, 9) }),
    ({ first, inside, last, single }) => (single === 0 ? first : first + inside + last)
  ),
  (key) => keyFaultIn(key) === undefined
)

const byte = integer(0, 255)
export const bytes = (minimum: number, maximum: number): Arbitrary<Buffer> =>
  Arbitrary.map(repeated(byte, minimum, maximum), (values) => Buffer.from(values))

export const accountId = Arbitrary.schema(AccountId)
export const workspaceId = Arbitrary.schema(WorkspaceId)
export const credentialId = Arbitrary.schema(CredentialId)
const apiKeyHash = Arbitrary.schema(ApiKeyHash)
const region = Arbitrary.schema(Region)

/** Any provider, the three with rules of their own (D27) about as often as all others together. */
export const provider: Arbitrary<Provider> = oneOf<Provider>(
  Arbitrary.schema(Provider),
  elementOf(["openai", "fireworks", "azure"])
)

/** A key as a JSON object with an `api_key` and perhaps a `region` and more (D28), written with any spacing. */
export const keyMaterial = (secret: Arbitrary<string>): Arbitrary<string> =>
  Arbitrary.map(
    Arbitrary.all({
      api_key: secret,
      region: oneOf<string | undefined>(Arbitrary.Constant(undefined), elementOf(["global", "europe", "us", "eu"])),
      more: oneOf<object>(Arbitrary.Constant({}), Arbitrary.Constant({ organization: null, tags: ["a", 1] })),
      before: elementOf(["", " ", "\n\t "]),
      spaces: integer(0, 2),
      regionFirst: boolean
    }),
    ({ api_key, before, more, region, regionFirst, spaces }) => {
      const declared = region === undefined ? {} : { region }
      const material = regionFirst ? { ...declared, api_key, ...more } : { ...more, api_key, ...declared }
      return before + JSON.stringify(material, null, spaces)
    }
  )

const takesMaterial = (slug: Provider) => slug === "openai" || slug === "fireworks"
const isObject = (key: string) => key.trimStart().startsWith("{")

/** A provider and a key that it accepts, around a secret. */
const providerAndKey = (secret: Arbitrary<string>) =>
  Arbitrary.map(
    Arbitrary.all({
      provider,
      any: secret,
      plain: Arbitrary.filter(secret, (key) => !/^\s*[{[]/.test(key)),
      material: keyMaterial(secret),
      asMaterial: boolean
    }),
    ({ any, asMaterial, material, plain, provider }) => ({
      provider,
      key: signsTokens(provider) ? plain : !takesMaterial(provider) ? any : asMaterial ? material : plain
    })
  )

/** The regions that fit a key (D29, D30), worked out from the encoded key alone. */
const regionsFor = ({ key, provider }: { readonly provider: Provider; readonly key: string }) => {
  if (provider === "azure") return [null, "global", "europe", "us"]
  if (!takesMaterial(provider) || !isObject(key)) return [null, "global"]
  const found: unknown = Reflect.get(Object(JSON.parse(key)), "region")
  return [null, found === "us" ? "us" : found === "eu" || found === "europe" ? "europe" : "global"]
}

const flags = Arbitrary.map(
  Arbitrary.all({ disabled: boolean, is_fallback: boolean, is_required: boolean, is_byok_only: boolean }),
  ({ is_byok_only, is_fallback, is_required, ...rest }) => ({
    ...rest,
    is_fallback,
    is_required: is_required && !is_fallback,
    is_byok_only: is_byok_only && !is_fallback
  })
)

const restrictions = Arbitrary.all({
  allowed_api_key_hashes: nullOr(repeated(apiKeyHash, 1, 4)),
  allowed_models: nullOr(repeated(text(0, 20), 0, 4)),
  allowed_user_ids: nullOr(repeated(text(0, 20), 0, 4))
})

const complete = (secret: Arbitrary<string>) =>
  Arbitrary.map(
    Arbitrary.all({
      pair: providerAndKey(secret),
      pick: integer(0, 11),
      rest: Arbitrary.all({ name: nullOr(text(0, 40)), declared_zdr: nullOr(boolean) }),
      restrictions,
      flags
    }),
    ({ flags, pair, pick, rest, restrictions }) => {
      const regions = regionsFor(pair)
      return { ...pair, ...rest, ...restrictions, ...flags, declared_region: regions[pick % regions.length] }
    }
  )

const optional = ChangeableField.literals.filter((field) => field !== "key")

/** The body of a create that is accepted, around a secret: any optional member may be absent, unknown ones present (D13). */
export const acceptedBody = (secret: Arbitrary<string>): Arbitrary<Record<string, unknown>> =>
  Arbitrary.map(
    Arbitrary.all({ body: complete(secret), absent: Arbitrary.array(elementOf(optional)), extra: boolean }),
    ({ absent, body, extra }) => ({
      ...Object.fromEntries(Object.entries(body).filter(([name]) => !absent.some((other) => other === name))),
      ...(extra ? { added_later: { key: null } } : {})
    })
  )

/** Any JSON value, with texts of one's own. */
export const json = (texts: Arbitrary<string>, depth = 2): Arbitrary<Schema.Json> => {
  const leaf = oneOf<Schema.Json>(
    texts,
    texts,
    Arbitrary.Constant(null),
    boolean,
    elementOf([0, -1, 1.5, 1e21, Number.MAX_SAFE_INTEGER])
  )
  if (depth === 0) return leaf
  const inner = json(texts, depth - 1)
  const names = elementOf(["a", "b", "key", "region", "__proto__", "constructor", "length"])
  return oneOf<Schema.Json>(
    leaf,
    Arbitrary.array(inner, { maxLength: 4 }),
    Arbitrary.map(Arbitrary.array(Arbitrary.all([names, inner]), { maxLength: 4 }), (entries): Schema.Json =>
      Object.fromEntries(entries)
    )
  )
}

/** A JSON object that has the members of a create, with values of any kind. */
export const anyBody = (texts: Arbitrary<string>): Arbitrary<Record<string, Schema.Json>> =>
  Arbitrary.map(
    Arbitrary.array(Arbitrary.all([elementOf(["key", "provider", "workspace_id", ...optional]), json(texts)]), {
      maxLength: 16
    }),
    (entries) => Object.fromEntries(entries)
  )

/** Any time that PostgreSQL and section 2.1 can represent: whole milliseconds. */
const time = Arbitrary.map(integer(0, 4_102_444_800_000), (millis) => DateTime.makeUnsafe(millis))

/** A credential as it is stored, in a workspace that has to exist. */
export const storedCredential: Arbitrary<Omit<UnstoredCredential, "workspace_id">> = Arbitrary.map(
  Arbitrary.all({
    id: credentialId,
    provider,
    name: nullOr(text(0, 255)),
    label: elementOf(["***...***", "***...x", "sk-...AbCd"]),
    declared_region: nullOr(region),
    declared_zdr: nullOr(boolean),
    restrictions,
    flags
  }),
  ({ flags, restrictions, ...rest }) => ({ ...defaults, ...rest, ...restrictions, ...flags })
)

/** What a sealed key may be bound to. */
export const sealingContext: Arbitrary<BoundCredential> = Arbitrary.map(
  Arbitrary.all({ account_id: accountId, workspace_id: workspaceId, credential: storedCredential }),
  ({ account_id, credential: { label: _label, name: _name, ...bound }, workspace_id }) => ({
    account_id,
    workspace_id,
    ...bound
  })
)

/** Bytes of the lengths that sealing format 1 has. */
export const sealedKey: Arbitrary<SealedKey> = Arbitrary.all({
  kek_id: elementOf(["kek-1", "kek.2_b", "K"]),
  wrapped_dek: Arbitrary.map(bytes(60, 60), (value) => new Uint8Array(value)),
  sealed: Arbitrary.map(bytes(63, 120), (value) => new Uint8Array(value))
})

/** A raw provider key of any form. */
export const rawKey: Arbitrary<Redacted.Redacted> = Arbitrary.map(text(1, 60), (key) => Redacted.make(key))

/** A credential as the service returns it. */
export const anyCredential: Arbitrary<Credential> = Arbitrary.map(
  Arbitrary.all({
    stored: storedCredential,
    workspace_id: workspaceId,
    created_at: time,
    sort_order: integer(0, 2 ** 31 - 1)
  }),
  ({ stored, ...rest }) => ({ ...stored, ...rest })
)

/** Members that an update may carry, in JSON, from a body that create would accept for any provider. */
export const changesBody: Arbitrary.Arbitrary<Record<string, unknown>> = Arbitrary.map(
  Arbitrary.all({
    body: acceptedBody(givenKey),
    given: Arbitrary.array(elementOf(ChangeableField.literals), { maxLength: 6 })
  }),
  ({ body, given }) =>
    Object.fromEntries(Object.entries(body).filter(([name]) => given.some((member) => member === name)))
)

/** The changes in two parts that share no member. Key and region stay together, as a key may bring its region. */
export const inTwoParts = (body: Record<string, unknown>, inFirst: ReadonlyArray<boolean>) => {
  const isFirst = (name: string) => {
    const index = ChangeableField.literals.findIndex((member) => member === (name === "declared_region" ? "key" : name))
    return inFirst[index % Math.max(1, inFirst.length)] === true
  }
  const part = (wanted: boolean) =>
    Object.fromEntries(Object.entries(body).filter(([name]) => isFirst(name) === wanted))
  return [part(true), part(false)] as const
}
