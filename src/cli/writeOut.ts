import { writeFileSync } from "node:fs"
import { Socket } from "node:net"
import { Effect } from "effect"
import { OutputFailed } from "./OutputFailed.ts"

const ignore = () => undefined

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code ?? "unknown"

/** Node's own stream for files ignores that a full disk took only a part of the text. */
const writeToFile = (text: string) =>
  Effect.try({
    try: () => writeFileSync(process.stdout.fd, text),
    catch: (error) => new OutputFailed({ code: codeOf(error) })
  })

const writeToSocket = (socket: Socket, text: string): Effect.Effect<void, OutputFailed> =>
  Effect.callback((resume) => {
    socket.on("error", ignore)
    socket.write(text, (error) => {
      if (error !== undefined && error !== null) return resume(Effect.fail(new OutputFailed({ code: codeOf(error) })))
      socket.off("error", ignore)
      resume(Effect.void)
    })
  })

/** Writes to standard output and waits until it is written. Returns false once nobody reads any more. */
export const writeOut = (text: string): Effect.Effect<boolean, OutputFailed> =>
  Effect.suspend(() => {
    const stdout: NodeJS.WriteStream | Socket = process.stdout
    return stdout instanceof Socket ? writeToSocket(stdout, text) : writeToFile(text)
  }).pipe(
    Effect.as(true),
    Effect.catchIf(
      ({ code }) => code === "EPIPE",
      () => Effect.succeed(false)
    )
  )
