import { randomUUID } from "node:crypto"
import { DateTime, Effect, Option } from "effect"
import { Command } from "effect/cli"
import { EventCursor } from "../port/Events.ts"
import { post, isAccepted, WebhookEndpoint } from "../service/audit/Webhook.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { CommandFailed, print } from "./Output.ts"

const test = Command.make("test", {}, () =>
  Effect.gen(function* () {
    const endpoint = yield* Effect.provide(WebhookEndpoint, CommandLayers.webhookEndpoint)
    if (Option.isNone(endpoint)) return yield* new CommandFailed({ message: "BYOK_WEBHOOK_URL is not set." })
    const id = `test_${randomUUID()}`
    const timestamp = DateTime.formatIso(yield* DateTime.now)
    const answer = yield* post(endpoint.value, { id, type: "webhook.test", timestamp, data: {} })
    if (!isAccepted(answer)) {
      const outcome = typeof answer === "number" ? `answered ${answer}` : answer
      return yield* new CommandFailed({ message: `The endpoint ${outcome}.` })
    }
    yield* print({ id, status: answer })
  })
).pipe(Command.withDescription("Post a message webhook.test to BYOK_WEBHOOK_URL, once"))

const status = Command.make("status", {}, () =>
  Effect.gen(function* () {
    const state = yield* CommandLayers.asOperatorWith(EventCursor, CommandLayers.withoutKeyring)(({ state }) => state)
    if (Option.isNone(state)) return yield* new CommandFailed({ message: "No instance has delivered events yet." })
    const { after, failures, lag, pause, waiting } = state.value
    yield* print({ after, failures, waiting, lag_seconds: Math.round(lag), pause_seconds: Math.ceil(pause) })
  })
).pipe(Command.withDescription("Show the `seq` after which events wait, how many, and failed deliveries"))

export const webhookCommand = Command.make("webhook").pipe(
  Command.withDescription("Events that are posted to BYOK_WEBHOOK_URL"),
  Command.withSubcommands([test, status])
)
