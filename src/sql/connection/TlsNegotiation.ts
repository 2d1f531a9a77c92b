import type { Socket } from "node:net"
import { Duplex } from "node:stream"

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
const accepted = 0x53 // S

/** A connection on which PostgreSQL agrees to TLS before anything else is sent. */
export class TlsNegotiation extends Duplex {
  readonly #socket: Socket

  constructor(socket: Socket) {
    super()
    this.#socket = socket
    socket.once("error", (error) => this.destroy(error))
    socket.once("close", () => this.destroy())
  }

  override _construct(callback: (error?: Error) => void): void {
    const closed = () => callback(Object.assign(new Error("Connection closed"), { code: "ECONNRESET" }))
    this.#socket.once("close", closed)
    this.#socket.write(sslRequest)
    this.#socket.once("data", (answer: Buffer) => {
      this.#socket.removeListener("close", closed)
      // Anything after the first byte could be plaintext injected ahead of the handshake.
      if (answer[0] !== accepted || answer.length > 1) return callback(new Error("The database does not speak TLS"))
      this.#socket.on("data", (chunk: Buffer) => {
        if (!this.push(chunk)) this.#socket.pause()
      })
      this.#socket.once("end", () => this.push(null))
      callback()
    })
  }

  override _read(): void {
    this.#socket.resume()
  }

  override _write(chunk: Buffer, _encoding: string, callback: (error?: Error | null) => void): void {
    this.#socket.write(chunk, callback)
  }

  override _final(callback: () => void): void {
    this.#socket.end(callback)
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#socket.destroy()
    callback(error)
  }
}
