import type { Worker } from "node:cluster"
import { type Duration, Effect, type Option } from "effect"
import { type Answers, isAnswer, type Question } from "./Question.ts"

let asked = 0

/** Asks a process that this one has started. None if it does not answer in time. */
export const askWorker = <Name extends keyof Answers>(
  worker: Worker,
  question: Name,
  timeout: Duration.Input
): Effect.Effect<Option.Option<Answers[Name]>> =>
  Effect.callback<Answers[Name]>((resume) => {
    const id = (asked += 1)
    const onMessage = (message: unknown) => {
      if (!isAnswer(message) || message.id !== id) return
      worker.off("message", onMessage)
      resume(Effect.succeed(message.answer as Answers[Name]))
    }
    worker.on("message", onMessage)
    // One that cannot be asked does not answer.
    worker.send({ question, id } satisfies Question, () => {})
    return Effect.sync(() => worker.off("message", onMessage))
  }).pipe(Effect.timeoutOption(timeout))
