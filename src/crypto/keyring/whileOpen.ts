import { closeSync, openSync } from "node:fs"

/** Opens a path for reading, and closes it when `use` ends. */
export const whileOpen = <A>(path: string, use: (descriptor: number) => A): A => {
  const descriptor = openSync(path, "r")
  try {
    return use(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
