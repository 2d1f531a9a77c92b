import { Effect, Layer } from "effect"
import { Management } from "./Management.ts"
import { type Answer, type Answers, isQuestion } from "./Question.ts"

/** In a process of several: answers the questions of the one that started it. */
export const answerPrimary = Layer.effectDiscard(
  Effect.gen(function* () {
    const { condition, reload, snapshot } = yield* Management
    const fork = Effect.runForkWith(yield* Effect.context())
    const answers: { readonly [Name in keyof Answers]: Effect.Effect<Answers[Name]> } = {
      snapshot,
      condition,
      reload: Effect.match(reload, {
        onSuccess: ({ kek_ids }) => kek_ids,
        onFailure: (failure) => (failure._tag === "ReloadRefused" ? failure.reason : null)
      })
    }
    const onMessage = (message: unknown) => {
      if (!isQuestion(message)) return
      const { id, question } = message
      const answered: Effect.Effect<Answers[keyof Answers]> = answers[question]
      fork(Effect.map(answered, (answer) => process.send?.({ answer, id } satisfies Answer)))
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => process.on("message", onMessage)),
      () => Effect.sync(() => process.off("message", onMessage))
    )
  })
)
