import { join } from "node:path"

export const project = join(import.meta.dirname, "../..")

/** A rule of the sources and documents. Its control shows that a breach would be found. */
export interface Check {
  readonly title: string
  readonly run: () => Promise<void> | void
  readonly control?: () => Promise<void> | void
}
