import { Effect, Schema } from "effect"

/** The body and description of a failure that always has the same message. */
export const fixedMessage = <const Code extends number, const Message extends string>(
  code: Code,
  message: Message,
  description: string
) =>
  [
    {
      error: Schema.Struct({ code: Schema.tag(code), message: Schema.tag(message) }).pipe(
        Schema.withConstructorDefault(Effect.succeed({}))
      )
    },
    { httpApiStatus: code, description }
  ] as const
