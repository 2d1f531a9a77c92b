import { fork } from "node:child_process"
import { randomFillSync } from "node:crypto"
import { extname } from "node:path"
import { fileURLToPath } from "node:url"
import { Data, Duration, Effect, Redacted } from "effect"
import { AuthenticationFailed, KeyStoreUnavailable, UnknownKeyId } from "../../port/Cipher.ts"
import type { KeyEncryption, KekIdentity } from "../KeyEncryption.ts"
import {
  bytesOf,
  monotonicMillis,
  sameKeys,
  type TokenAnswer,
  type TokenRefusal,
  type TokenRequest,
  type TokenTarget
} from "./TokenMessages.ts"
import { makeRequestQueue } from "../../runtime/FairQueue.ts"
import { nonceLength, overhead } from "../../runtime/AesGcm.ts"

export interface TokenSettings extends Omit<TokenTarget, "pin"> {
  readonly pin: Redacted.Redacted
  /** How long a caller waits for an answer, and how long the process may send nothing while a call waits. */
  readonly deadline: Duration.Duration
}

/** The token does not match the settings. The message never quotes their values. */
class TokenRefused extends Data.TaggedError("TokenRefused")<TokenRefusal> {}

/** An open token. */
export interface Token {
  /** The primary key first. */
  readonly keks: ReadonlyArray<KekIdentity>
  /** Wraps or unwraps: returns the output that `TokenRequest` describes. Fails if no answer comes by the deadline. */
  readonly ask: (
    request: Pick<TokenRequest, "aad" | "input" | "kek_id" | "nonce" | "operation">
  ) => Effect.Effect<Buffer, AuthenticationFailed | KeyStoreUnavailable>
}

/** A token process whose token is open. */
interface Running {
  readonly keks: ReadonlyArray<KekIdentity>
  /**
   * The function that settles each call, by the call's id. Pass undefined when the process has ended. Returns false if
   * the caller no longer waits.
   */
  readonly pending: Map<number, (answer: TokenAnswer | undefined) => boolean>
  readonly send: (request: TokenRequest) => void
  /** How many messages the process has sent. */
  readonly messageCount: () => number
  /** Ends the process, and kills it after `timeout` milliseconds. */
  readonly stop: (timeout: number) => Promise<void>
}

const program = fileURLToPath(new URL(`./TokenProcess${extname(import.meta.url)}`, import.meta.url))
/** Milliseconds until a process that has not opened the token is killed. */
const openTimeout = 10_000
/** Milliseconds until a process that was asked to end is killed. */
const stopTimeout = 1000
/** Milliseconds between the end of a process and the start of the next. */
const reopenDelay = 1000
/** How many calls may be unanswered, including those whose caller has left; further calls fail at once. */
const maxPending = 1000

const unavailable = (reason: string) => new KeyStoreUnavailable({ reason })

/**
 * Starts the token process. The promise is fulfilled once the token is open. Calls `onRefused` whenever the token
 * does not match the settings, and `onExit` when the process has ended.
 */
const start = (target: TokenTarget, onRefused: (refusal: TokenRefusal) => void, onExit: () => void) =>
  new Promise<Running>((resolve, reject) => {
    const pending: Running["pending"] = new Map()
    let messageCount = 0
    const child = fork(program, [], { execArgv: [], serialization: "advanced", stdio: ["ignore", 2, 2, "ipc"] })
    const exited = new Promise<void>((resolve) => {
      child.once("error", () => resolve())
      child.once("exit", () => resolve())
    })
    const openTimer = setTimeout(() => child.kill("SIGKILL"), openTimeout)
    const stop = async (timeout: number) => {
      if (child.connected) child.disconnect()
      const timer = setTimeout(() => child.kill("SIGKILL"), timeout)
      await exited
      clearTimeout(timer)
    }
    void exited.then(() => {
      clearTimeout(openTimer)
      onExit()
      reject(unavailable("the token process has ended"))
      for (const settle of pending.values()) settle(undefined)
    })
    child.on("message", (answer: TokenAnswer) => {
      messageCount += 1
      if ("opened" in answer) {
        clearTimeout(openTimer)
        const send = (request: TokenRequest) => {
          if (child.connected) child.send(request, () => {})
        }
        resolve({ keks: answer.opened, pending, send, messageCount: () => messageCount, stop })
      } else if ("refused" in answer) {
        onRefused(answer.refused)
        reject(new TokenRefused(answer.refused))
      } else if ("unavailable" in answer) reject(unavailable(answer.unavailable))
      else {
        const isDelivered = pending.get(answer.id)?.(answer) ?? false
        if (!isDelivered && "output" in answer) bytesOf(answer.output).fill(0)
      }
    })
    child.send(target, () => {})
  })

/**
 * Opens the token in a child process until the scope closes, because a PKCS#11 call may hang or crash. If the process
 * ends, or sends nothing until the deadline of a call (even one whose caller has left), the next call starts another
 * process, but not within a second of the end. Once the token refuses the PIN, no process starts again, because more
 * wrong PINs would lock the token.
 */
export const openToken = Effect.fnUntraced(function* ({ deadline, pin, ...target }: TokenSettings) {
  let firstKeks: ReadonlyArray<KekIdentity> | undefined
  let current: Promise<Running> | undefined
  /** Why no process may start again; undefined if one may. */
  let finalReason: string | undefined
  /** When a process may start again, on the clock of `performance.now`. */
  let earliestStart = 0
  let lastId = 0

  const onRefused = ({ message, part }: TokenRefusal) => {
    if (part === "pin") finalReason = `the token was lost: ${message}`
  }
  const startChecked = () => {
    const started: Promise<Running> = start({ ...target, pin: Redacted.value(pin) }, onRefused, () => {
      if (current === started) current = undefined
      earliestStart = performance.now() + reopenDelay
    }).then((running) => {
      firstKeks ??= running.keks
      if (sameKeys(firstKeks, running.keks)) return running
      void running.stop(0)
      throw unavailable("the token's keys have changed")
    })
    return (current = started)
  }
  const failureOf = (cause: unknown) =>
    cause instanceof TokenRefused || cause instanceof KeyStoreUnavailable
      ? cause
      : unavailable("the token is not usable")

  const { keks } = yield* Effect.acquireRelease(Effect.tryPromise({ try: startChecked, catch: failureOf }), () =>
    Effect.promise(async () => {
      finalReason = "the service is stopping"
      await current?.then(
        ({ stop }) => stop(stopTimeout),
        () => {}
      )
    })
  )

  const runningOrNew = Effect.suspend(() => {
    if (finalReason !== undefined) return Effect.fail(unavailable(finalReason))
    if (current === undefined && performance.now() < earliestStart)
      return Effect.fail(unavailable("the token was lost just now"))
    return Effect.tryPromise({ try: () => current ?? startChecked(), catch: failureOf }).pipe(
      Effect.catchTag("TokenRefused", ({ message }) => Effect.fail(unavailable(`the token was lost: ${message}`)))
    )
  })

  const ask: Token["ask"] = (request) =>
    Effect.flatMap(runningOrNew, ({ messageCount, pending, send, stop }) => {
      if (pending.size >= maxPending) return Effect.fail(unavailable("too many calls are waiting for the token"))
      const id = (lastId += 1)
      const countBefore = messageCount()
      return Effect.callback<Buffer, AuthenticationFailed | KeyStoreUnavailable>((resume) => {
        let isAwaited = true
        const timer = setTimeout(() => {
          pending.delete(id)
          // The process has sent nothing meanwhile: it hangs.
          if (messageCount() === countBefore) void stop(0)
        }, Duration.toMillis(deadline))
        pending.set(id, (answer) => {
          clearTimeout(timer)
          pending.delete(id)
          if (answer === undefined || !("id" in answer)) {
            resume(Effect.fail(unavailable(finalReason ?? "the token was lost")))
          } else if ("output" in answer) resume(Effect.succeed(bytesOf(answer.output)))
          else if (answer.failure === "AuthenticationFailed") resume(Effect.fail(new AuthenticationFailed()))
          else resume(Effect.fail(unavailable(answer.reason)))
          return isAwaited
        })
        send({ ...request, id, expires: monotonicMillis() + Duration.toMillis(deadline) })
        return Effect.sync(() => (isAwaited = false))
      })
    }).pipe(
      Effect.timeoutOrElse({ duration: deadline, orElse: () => Effect.fail(unavailable("the token does not answer")) })
    )

  return { keks, ask } satisfies Token
})

/** Bytes of a wrapped data key. */
const wrappedLength = overhead + 32

/** Limits of the queue: the token serves one call at a time, and a few more are in transit. */
const queueLimits = { inProgress: 4, waiting: 1000 }

/** Wraps and unwraps on a PKCS#11 token, whose keys never leave it. */
export const makeTokenEncryption = ({ ask, keks }: Token): KeyEncryption["Service"] => {
  const has = (kek_id: string) => keks.some((kek) => kek.kek_id === kek_id)
  return {
    queue: makeRequestQueue(queueLimits),
    primary: () => keks[0]?.kek_id,
    keks: () => keks,
    wrap: (kek_id, dek, aad) =>
      Effect.suspend((): Effect.Effect<Buffer, UnknownKeyId | KeyStoreUnavailable> => {
        if (!has(kek_id)) return Effect.fail(new UnknownKeyId({ kek_id }))
        const nonce = Buffer.allocUnsafeSlow(nonceLength)
        randomFillSync(nonce)
        const answer = ask({ operation: "wrap", kek_id, nonce, input: dek, aad })
        return answer.pipe(
          Effect.map((output) => Buffer.concat([nonce, output])),
          Effect.catchTag("AuthenticationFailed", (failure) => Effect.die(failure))
        )
      }),
    unwrap: (kek_id, wrapped_dek, aad) =>
      Effect.suspend((): Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed | KeyStoreUnavailable> => {
        if (!has(kek_id)) return Effect.fail(new UnknownKeyId({ kek_id }))
        if (wrapped_dek.length !== wrappedLength) return Effect.fail(new AuthenticationFailed())
        const nonce = wrapped_dek.subarray(0, nonceLength)
        return ask({ operation: "unwrap", kek_id, nonce, input: wrapped_dek.subarray(nonceLength), aad })
      })
  }
}
