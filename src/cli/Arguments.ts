import { Effect, Option, Schema } from "effect"
import { Argument, CliError, Command, Flag } from "effect/cli"
import { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"
import { Text } from "../domain/Text.ts"

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
  Command.withDescription("Stores customers' provider credentials and manages who may use them.")
)

/** Control characters and Unicode's line ends, which could act on a terminal or forge a line. */
export const unprintable = /[\p{Cc}\u2028\u2029]/gu

const Name = Text.check(
  Schema.isNonEmpty(),
  Schema.isMaxCodePoints(255),
  Schema.makeFilter((text: string) => text.search(unprintable) < 0)
)

/** Decodes an argument. The error prints the help and `message`, which says what is expected, never what was given. */
export const parse =
  <A>(schema: Schema.ConstraintCodec<A, unknown>, message: string) =>
  (given: unknown) =>
    Option.match(Schema.decodeUnknownOption(schema)(given), {
      onNone: () => Effect.fail(new CliError.UserError({ cause: message })),
      onSome: Effect.succeed
    })

export const account = Flag.String("account").pipe(
  Flag.withDescription("Id of the account"),
  Flag.mapEffect(parse(AccountId, "--account must be a UUID."))
)

export const credentialId = Argument.String("ID").pipe(
  Argument.withDescription("Id of the credential"),
  Argument.mapEffect(parse(CredentialId, "ID must be a UUID."))
)

export const workspace = Flag.String("workspace").pipe(
  Flag.withDescription("Id of the workspace"),
  Flag.mapEffect(parse(WorkspaceId, "--workspace must be a UUID."))
)

export const provider = Flag.String("provider").pipe(
  Flag.withDescription("Slug of the provider"),
  Flag.mapEffect(parse(Provider, "--provider must be a known provider slug."))
)

export const name = Flag.String("name").pipe(
  Flag.withDescription("Human-readable name"),
  Flag.mapEffect(parse(Name, "--name must have 1 to 255 characters, none of them a control character."))
)
