import { Effect, Schema } from "effect"

/** The fields and annotations of an HTTP error whose message never varies. */
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
