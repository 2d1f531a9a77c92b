import { Effect, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { AccountId } from "../domain/AccountId.ts"
import { Text } from "../domain/Text.ts"
import { UsageError } from "./UsageError.ts"

const Name = Text.check(Schema.isNonEmpty(), Schema.isMaxCodePoints(255))

/** Decodes an argument; a wrong one is told by its name and what is expected. */
export const parse = <A>(schema: Schema.ConstraintCodec<A, unknown>, given: string, message: string) =>
  Option.match(Schema.decodeUnknownOption(schema)(given), {
    onNone: () => Effect.fail(new UsageError({ message })),
    onSome: Effect.succeed
  })

export const parseName = (given: string) => parse(Name, given, "--name must have 1 to 255 characters.")

export const parseAccount = (given: string) => parse(AccountId, given, "--account must be a UUID.")

export const account = Flag.String("account").pipe(Flag.withDescription("Id of the account"))

export const name = Flag.String("name").pipe(Flag.withDescription("Human-readable name"))
