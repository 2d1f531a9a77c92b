import { once } from "node:events"
import { connect } from "node:net"

const complete = (bytes: Buffer) => {
  const end = bytes.indexOf("\r\n\r\n")
  const length = /\r\ncontent-length: (\d+)/i.exec(bytes.toString("latin1", 0, Math.max(end, 0)))?.[1]
  return end >= 0 && length !== undefined && bytes.length >= end + 4 + Number(length)
}

/** One connection, over which requests are sent one after the other. */
export const openStopwatch = async (url: string) => {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname).setNoDelay(true)
  await once(socket, "connect")
  return {
    /** The status of the answer, and the microseconds until it had arrived completely. */
    time: (head: string) =>
      new Promise<{ readonly status: number; readonly micros: number }>((resolve, reject) => {
        let received: Buffer = Buffer.alloc(0)
        const take = (chunk: Buffer) => {
          const micros = Number(process.hrtime.bigint() - began) / 1_000
          received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
          if (!complete(received)) return
          socket.off("data", take).off("close", reject)
          resolve({ status: Number(received.toString("latin1", 9, 12)), micros })
        }
        socket.on("data", take).once("close", reject)
        const began = process.hrtime.bigint()
        socket.write(`${head}\r\nHost: byok.test\r\n\r\n`)
      }),
    close: () => socket.destroy()
  }
}
