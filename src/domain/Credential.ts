import { DateTime, Schema, SchemaTransformation, Struct } from "effect"
import { ShortText, precheckLength } from "./checkInput.ts"
import { ApiKeyHash, CredentialId, WorkspaceId } from "./Identifiers.ts"
import { RequestedProvider, StoredProvider } from "./Provider.ts"
import { Region } from "./Region.ts"

const iso8601 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** The schema of a time on the wire: UTC to the millisecond, with `Z` (D33). */
export const timestamp = (description: string) =>
  Schema.String.check(
    Schema.isPattern(iso8601, { description, toJsonSchema: () => ({ pattern: iso8601.source, format: "date-time" }) })
  ).pipe(Schema.decodeTo(Schema.DateTimeUtc, SchemaTransformation.dateTimeUtcFromString))

/** Converts milliseconds since 1970, or null, to a time or null. */
export const timeOrNull = (at: number | null) => (at === null ? null : DateTime.makeUnsafe(at))

const nullableOutput = <S extends Schema.Constraint>(schema: S, description: string) =>
  Schema.NullOr(schema).annotate({ description })

const flagOutput = (description: string) => Schema.Boolean.annotate({ description })

/** The operation that takes an input. Only a create has defaults. */
type Operation = "create" | "update"

const nullableInput = <S extends Schema.Constraint>(schema: S, message: string, description: string) => ({
  input: (operation: Operation) =>
    Schema.NullOr(schema).annotate({ message, description, ...(operation === "create" ? { default: null } : {}) }),
  default: null
})

const flagInput = (description: string) => ({
  input: (operation: Operation) =>
    Schema.Boolean.annotate({
      message: "must be true or false",
      description,
      ...(operation === "create" ? { default: false } : {})
    }),
  default: false as const
})

const tooLong = "must have at most 100 elements"

const listInput = <T extends string>(element: Schema.Codec<T, string>, minLength: 0 | 1, description: string) => {
  const list = Schema.Array(element).check(Schema.isMaxLength(100, { message: tooLong }))
  const atLeast1 = Schema.isMinLength(1, { message: "must have at least 1 element" })
  const nullable = nullableInput(
    minLength === 1 ? list.check(atLeast1) : list,
    "must be a list of strings or null",
    description
  )
  // OpenAPI shows the limit of `list`; `precheckLength` refuses a longer one before its elements are decoded.
  return { ...nullable, input: (operation: Operation) => nullable.input(operation).pipe(precheckLength(100, tooLong)) }
}

/** The type of a column in PostgreSQL. */
export type Column = "boolean" | "integer" | "text" | "text[]" | "timestamptz" | "uuid"

interface Member {
  /** The member in responses (section 2.1). */
  readonly output: Schema.Constraint
  readonly column: Column
  /** The input member of a create that an update cannot change (section 4.1). */
  readonly createOnly?: Schema.Constraint
  /** The input member of create and update (section 4.1, section 8). */
  readonly input?: (operation: Operation) => Schema.Constraint
  /** Its default in a create. */
  readonly default?: null | false
  /**
   * Position in the sealing context, for members that decide where and for whom the key may be used. Must never change.
   */
  readonly bound?: number
}

/** The members of a credential in wire order, from which schemas, columns, sealing context and fingerprint derive. */
export const members = {
  id: { output: CredentialId, column: "uuid", bound: 2 },
  workspace_id: { output: WorkspaceId, createOnly: Schema.optionalKey(WorkspaceId), column: "uuid", bound: 1 },
  provider: { output: StoredProvider, createOnly: RequestedProvider, column: "text", bound: 3 },
  name: {
    output: nullableOutput(Schema.String, "Human-readable name; null if none was given."),
    ...nullableInput(ShortText, "must be a string or null", "Human-readable name."),
    column: "text"
  },
  label: { output: Schema.String.annotate({ description: "Masked display form of the raw key." }), column: "text" },
  created_at: { output: timestamp("Creation time in UTC, to the millisecond."), column: "timestamptz" },
  disabled: {
    output: flagOutput("Whether the credential is disabled."),
    ...flagInput("Whether the credential is disabled."),
    column: "boolean",
    bound: 4
  },
  is_fallback: {
    output: flagOutput(
      "Used only after the provider's non-fallback credentials and its shared endpoints have been tried."
    ),
    ...flagInput("Use only after the provider's non-fallback keys and its shared endpoints. Not with is_byok_only."),
    column: "boolean",
    bound: 5
  },
  is_required: {
    output: flagOutput("Shared endpoints of the provider are removed for every model."),
    ...flagInput("Remove the provider's shared endpoints for every model. Not for fallback credentials."),
    column: "boolean",
    bound: 6
  },
  is_byok_only: {
    output: flagOutput("Shared endpoints of the provider are removed for the models that the credential applies to."),
    ...flagInput("Remove the provider's shared endpoints for the models this credential applies to."),
    column: "boolean",
    bound: 7
  },
  allowed_api_key_hashes: {
    output: nullableOutput(
      Schema.Array(ApiKeyHash),
      "SHA-256 of each API key that may use the credential; null for no restriction."
    ),
    ...listInput(
      ApiKeyHash,
      1,
      "SHA-256 of each API key of the account that may use the credential; null for no restriction."
    ),
    column: "text[]",
    bound: 8
  },
  allowed_models: {
    output: nullableOutput(
      Schema.Array(Schema.String),
      "Model slugs; null for no restriction, an empty list matches nothing."
    ),
    ...listInput(ShortText, 0, "Model slugs; null for no restriction, an empty list matches nothing."),
    column: "text[]",
    bound: 9
  },
  allowed_user_ids: {
    output: nullableOutput(
      Schema.Array(Schema.String),
      "User ids; null for no restriction, an empty list matches nothing."
    ),
    ...listInput(ShortText, 0, "User ids; null for no restriction, an empty list matches nothing."),
    column: "text[]",
    bound: 10
  },
  declared_region: {
    output: nullableOutput(Region, "Declared data region; null if none was declared."),
    ...nullableInput(
      Region,
      "must be global, europe, us or null",
      "Declared data region. For openai and fireworks it must match the region of the key; only azure may declare europe or us otherwise."
    ),
    column: "text",
    bound: 11
  },
  declared_zdr: {
    output: nullableOutput(Schema.Boolean, "Declared zero data retention; null to inherit the service's data policy."),
    ...nullableInput(
      Schema.Boolean,
      "must be true, false or null",
      "Declared zero data retention; null inherits the service's policy for the endpoint."
    ),
    column: "boolean",
    bound: 12
  },
  sort_order: {
    output: Schema.Int.check(
      Schema.isGreaterThanOrEqualTo(0, {
        description:
          "Position within workspace and provider: the lowest is tried first; created_at, then id, break ties."
      })
    ),
    column: "integer"
  }
} as const satisfies Readonly<Record<string, Member>>

type Table = typeof members
type NamesWith<Part> = { [M in keyof Table]: Table[M] extends Part ? M : never }[keyof Table]
export type ChangeableName = NamesWith<{ readonly input: unknown }>
export type ListName = NamesWith<{ readonly column: "text[]" }>
export type FixedName = Exclude<keyof Table, ChangeableName>
export type BoundName = NamesWith<{ readonly bound: number }>

export const memberNames = Struct.keys(members)

const changeableNames = memberNames.filter((name): name is ChangeableName => "input" in members[name])
export const fixedNames = memberNames.filter((name): name is FixedName => !("input" in members[name]))
export const listNames = memberNames.filter((name): name is ListName => members[name].column === "text[]")

type Outputs = { readonly [Name in keyof Table]: Table[Name]["output"] }

const outputs = Object.fromEntries(memberNames.map((name) => [name, members[name].output])) as unknown as Outputs

/** A credential in responses (section 2.1), without the raw key. */
export const Credential = Schema.Struct(outputs).annotate({ identifier: "Credential" })
export type Credential = typeof Credential.Type

/** Picks the members in wire order. Written out: a loop takes several times as long. */
export const membersOf = <Value>(source: { readonly [Name in keyof Table]: Value }): {
  -readonly [Name in keyof Table]: Value
} => ({
  id: source.id,
  workspace_id: source.workspace_id,
  provider: source.provider,
  name: source.name,
  label: source.label,
  created_at: source.created_at,
  disabled: source.disabled,
  is_fallback: source.is_fallback,
  is_required: source.is_required,
  is_byok_only: source.is_byok_only,
  allowed_api_key_hashes: source.allowed_api_key_hashes,
  allowed_models: source.allowed_models,
  allowed_user_ids: source.allowed_user_ids,
  declared_region: source.declared_region,
  declared_zdr: source.declared_zdr,
  sort_order: source.sort_order
})

type Inputs = { readonly [M in ChangeableName]: ReturnType<Table[M]["input"]> }

/** The schemas of the changeable members in the input of an operation. */
export const inputFields = (operation: Operation): Inputs =>
  Object.fromEntries(changeableNames.map((name) => [name, members[name].input(operation)])) as unknown as Inputs
