import type { Issue } from "../../domain/Issue.ts"

/** A record of a file to import: the body of a create, or why it has none. */
export type Entry = { readonly line: number; readonly body: unknown } | { readonly line: number; readonly issue: Issue }

export const refusedEntry = (line: number, message: string): Entry => ({ line, issue: { path: [], message } })
