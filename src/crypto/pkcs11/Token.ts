import { fork } from "node:child_process"
import { extname } from "node:path"
import { fileURLToPath } from "node:url"
import { Data, Duration, Effect, Redacted } from "effect"
import { AuthenticationFailed, KeyStoreUnavailable } from "../../port/CipherErrors.ts"
import type { KnownKek } from "../KeyEncryption.ts"
import type { TokenAnswer, TokenRefusal, TokenRequest, TokenTarget } from "./TokenMessages.ts"

export interface TokenSettings extends Omit<TokenTarget, "pin"> {
  readonly pin: Redacted.Redacted
  /** How long a caller waits for an answer, and a process that owes one may say nothing. */
  readonly deadline: Duration.Duration
}

/** The token is not the one of the settings; the message says what was expected, and holds no value. */
export class TokenRefused extends Data.TaggedError("TokenRefused")<TokenRefusal> {}

/** A PKCS#11 token whose keys were found. */
export interface Token {
  readonly keks: ReadonlyArray<KnownKek>
  readonly ask: (
    request: Pick<TokenRequest, "aad" | "input" | "kek_id" | "nonce" | "operation">
  ) => Effect.Effect<Buffer, AuthenticationFailed | KeyStoreUnavailable>
}

interface Running {
  readonly keks: ReadonlyArray<KnownKek>
  readonly pending: Map<number, (answer: TokenAnswer | undefined) => void>
  readonly send: (request: TokenRequest) => void
  /** How often it has said something. */
  readonly heard: () => number
  /** Succeeds when it has gone, by itself within the time or killed. */
  readonly stop: (patience: number) => Promise<void>
}

const program = fileURLToPath(new URL(`./TokenProcess${extname(import.meta.url)}`, import.meta.url))
const patienceToOpen = 10_000
const patienceToStop = 1000
const pauseBeforeReopening = 1000
/** So many may wait; beyond that nobody has to wait for the deadline to hear no. */
const limit = 1000

const unavailable = (reason: string) => new KeyStoreUnavailable({ reason })

/** Starts the process that speaks to the token; it has opened it when the promise is fulfilled. */
const start = (target: TokenTarget, whenRefused: (refusal: TokenRefusal) => void, whenGone: () => void) =>
  new Promise<Running>((resolve, reject) => {
    const pending: Running["pending"] = new Map()
    let heard = 0
    const child = fork(program, [], { execArgv: [], serialization: "advanced", stdio: ["ignore", 2, 2, "ipc"] })
    const gone = new Promise<void>((resolve) => {
      child.once("error", () => resolve())
      child.once("exit", () => resolve())
    })
    const tooLate = setTimeout(() => child.kill("SIGKILL"), patienceToOpen)
    const stop = async (patience: number) => {
      if (child.connected) child.disconnect()
      const impatience = setTimeout(() => child.kill("SIGKILL"), patience)
      await gone
      clearTimeout(impatience)
    }
    void gone.then(() => {
      clearTimeout(tooLate)
      whenGone()
      reject(unavailable("the process that speaks to the token has ended"))
      for (const settle of pending.values()) settle(undefined)
    })
    child.on("message", (answer: TokenAnswer) => {
      heard += 1
      if ("opened" in answer) {
        clearTimeout(tooLate)
        const send = (request: TokenRequest) => {
          if (child.connected) child.send(request, () => {})
        }
        resolve({ keks: answer.opened, pending, send, heard: () => heard, stop })
      } else if ("refused" in answer) {
        whenRefused(answer.refused)
        reject(new TokenRefused(answer.refused))
      } else if ("unavailable" in answer) reject(unavailable(answer.unavailable))
      else pending.get(answer.id)?.(answer)
    })
    child.send(target, () => {})
  })

const sameKeys = (some: ReadonlyArray<KnownKek>, others: ReadonlyArray<KnownKek>) =>
  some.every((kek, index) => Buffer.compare(kek.check_value, others[index]?.check_value ?? Buffer.alloc(0)) === 0)

/**
 * Opens the token, which is closed with the scope. Calls wait for one another in a process of its own: there is no PKCS#11
 * call that may not hang or crash, and pkcs11js has most of them only synchronous. When that process ends, or says
 * nothing until the deadline of a call, whether or not its caller still waits, the next call starts another, once a second
 * at most. Once the token has refused the PIN none is started any more, so as not to lock it.
 */
export const openToken = Effect.fnUntraced(function* ({ deadline, pin, ...target }: TokenSettings) {
  let known: ReadonlyArray<KnownKek> | undefined
  let current: Promise<Running> | undefined
  let refusal: string | undefined
  let notBefore = 0
  let next = 0

  const refused = ({ message, part }: TokenRefusal) => {
    if (part === "pin") refusal = `the token was lost: ${message}`
  }
  const begin = () => {
    const started: Promise<Running> = start({ ...target, pin: Redacted.value(pin) }, refused, () => {
      if (current === started) current = undefined
      notBefore = Date.now() + pauseBeforeReopening
    }).then((running) => {
      known ??= running.keks
      if (sameKeys(known, running.keks)) return running
      void running.stop(0)
      throw unavailable("the token has other keys than before")
    })
    return (current = started)
  }
  const failureOf = (cause: unknown) =>
    cause instanceof TokenRefused || cause instanceof KeyStoreUnavailable
      ? cause
      : unavailable("the token is not usable")

  const { keks } = yield* Effect.acquireRelease(Effect.tryPromise({ try: begin, catch: failureOf }), () =>
    Effect.promise(async () => {
      refusal = "the service is stopping"
      await current?.then(
        ({ stop }) => stop(patienceToStop),
        () => {}
      )
    })
  )

  const running = Effect.suspend(() => {
    if (refusal !== undefined) return Effect.fail(unavailable(refusal))
    if (current === undefined && Date.now() < notBefore) return Effect.fail(unavailable("the token was lost just now"))
    return Effect.tryPromise({ try: () => current ?? begin(), catch: failureOf }).pipe(
      Effect.catchTag("TokenRefused", ({ message }) => Effect.fail(unavailable(`the token was lost: ${message}`)))
    )
  })

  const ask: Token["ask"] = (request) =>
    Effect.flatMap(running, ({ heard, pending, send, stop }) => {
      if (pending.size >= limit) return Effect.fail(unavailable("too much waits for the token"))
      const id = (next += 1)
      const heardBefore = heard()
      return Effect.callback<Buffer, AuthenticationFailed | KeyStoreUnavailable>((resume) => {
        const impatience = setTimeout(() => {
          pending.delete(id)
          if (heard() === heardBefore) void stop(0)
        }, Duration.toMillis(deadline))
        pending.set(id, (answer) => {
          clearTimeout(impatience)
          pending.delete(id)
          if (answer === undefined || !("id" in answer))
            resume(Effect.fail(unavailable(refusal ?? "the token was lost")))
          else if ("output" in answer)
            resume(
              Effect.succeed(Buffer.from(answer.output.buffer, answer.output.byteOffset, answer.output.byteLength))
            )
          else if (answer.failure === "AuthenticationFailed") resume(Effect.fail(new AuthenticationFailed()))
          else resume(Effect.fail(unavailable(answer.reason)))
        })
        send({ ...request, id, expires: Date.now() + Duration.toMillis(deadline) })
      })
    }).pipe(
      Effect.timeoutOrElse({ duration: deadline, orElse: () => Effect.fail(unavailable("the token does not answer")) })
    )

  return { keks, ask } satisfies Token
})
