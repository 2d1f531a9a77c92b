import type { Issue } from "../domain/Issue.ts"

/** Why the workspace of a request cannot be used, or why it must name one (D6, D43). */
export const workspaceIssue = (requested: boolean): Issue => ({
  path: ["workspace_id"],
  message: requested ? "is not a workspace of this account" : "is required: the default workspace is deleted"
})
