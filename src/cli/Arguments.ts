import { Effect, Option, Schema } from "effect"
import { CliError, Command, Flag, Param } from "effect/cli"
import { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import { Provider, unknownProvider } from "../domain/Provider.ts"
import { NonEmptyShortText } from "../domain/checkInput.ts"

/** `byok`, with the flag that all subcommands share. */
export const root = Command.make("byok").pipe(
  Command.withSharedFlags({
    json: Flag.Boolean("json").pipe(
      Flag.withDescription(
        "Print exactly one JSON object on standard output; `audit export` and `credential import` print one per line"
      ),
      Flag.withDefault(false)
    )
  }),
  Command.withDescription(
    "Stores customers' provider credentials and manages who may use them. Settings are environment variables, such as DATABASE_URL and BYOK_KEYRING_FILE: docs/settings.md lists them."
  )
)

const Name = NonEmptyShortText.check(Schema.makeFilter((text: string) => !/[\p{Cc}\u2028\u2029]/u.test(text)))

/** Decodes a value. A failure prints the help and `message`, which says what is expected, never the value. */
export const parse =
  <A>(schema: Schema.ConstraintCodec<A, unknown>, message: string) =>
  (value: unknown) =>
    Option.match(Schema.decodeUnknownOption(schema)(value), {
      onNone: () => Effect.fail(new CliError.UserError({ cause: message })),
      onSome: Effect.succeed
    })

/** Makes a parameter that a schema decodes. `expected` ends the sentence that refuses a value: `NAME must …`. */
const makeParameter =
  <Kind extends Param.ParamKind>(kind: Kind, prefix: string) =>
  <A>(name: string, description: string, schema: Schema.ConstraintCodec<A, unknown>, expected: string) =>
    Param.String(kind, name).pipe(
      Param.withDescription(description),
      Param.mapEffect(parse(schema, `${prefix}${name} must ${expected}.`))
    )

export const argument = makeParameter(Param.argumentKind, "")

export const flag = makeParameter(Param.flagKind, "--")

/** An optional flag with any text. */
export const optionalText = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

/** A flag that is false by default. */
export const toggle = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

/** A mandatory flag `--yes`. `consequence` says what it confirms. */
export const confirmation = (consequence: string) =>
  toggle("yes", `Confirm: ${consequence} (required)`).pipe(
    Flag.mapEffect((confirmed) =>
      confirmed ? Effect.void : Effect.fail(new CliError.UserError({ cause: `--yes must be given: ${consequence}.` }))
    )
  )

export const account = flag("account", "Id of the account", AccountId, "be a UUID")

export const credentialId = argument("ID", "Id of the credential", CredentialId, "be a UUID")

export const workspace = flag("workspace", "Id of the workspace", WorkspaceId, "be a UUID")

const decodeProvider = Schema.decodeUnknownOption(Provider)

export const parseProvider = (text: string) =>
  Option.match(decodeProvider(text), {
    onNone: () => Effect.fail(new CliError.UserError({ cause: `--provider ${unknownProvider(text)}.` })),
    onSome: Effect.succeed
  })

export const provider = Flag.String("provider").pipe(
  Flag.withDescription("Slug of the provider"),
  Flag.mapEffect(parseProvider)
)

export const name = flag(
  "name",
  "Human-readable name",
  Name,
  "have 1 to 255 characters, none of them a control character"
)
