import { userInfo } from "node:os"
import type { Actor } from "../domain/Actor.ts"

const userName = () => {
  try {
    return userInfo().username
  } catch {
    return undefined
  }
}

/** Whoever runs the command: the name that the operating system has for its user, if it has one. */
export const cliActor = (): Actor => {
  const user = userName()
  return user === undefined ? { kind: "cli" } : { kind: "cli", user }
}
