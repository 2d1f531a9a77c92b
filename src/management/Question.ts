import type { Snapshot } from "../telemetry/Snapshot.ts"
import type { Condition } from "./Management.ts"

/** What a process is asked by the one that started it, and what it answers. */
export interface Answers {
  readonly snapshot: Snapshot
  readonly condition: Condition
  /** The keys in use; why they were not reloaded; null if the database does not answer. */
  readonly reload: ReadonlyArray<string> | string | null
}

export interface Question {
  readonly question: keyof Answers
  readonly id: number
}

export interface Answer {
  readonly answer: Answers[keyof Answers]
  readonly id: number
}

const has = <Name extends string>(message: unknown, name: Name): message is Record<Name, unknown> =>
  typeof message === "object" && message !== null && name in message

export const isQuestion = (message: unknown): message is Question => has(message, "question") && has(message, "id")

export const isAnswer = (message: unknown): message is Answer => has(message, "answer") && has(message, "id")
