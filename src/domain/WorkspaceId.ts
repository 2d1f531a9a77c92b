import { Schema } from "effect"
import { uuid } from "./Uuid.ts"

export const WorkspaceId = uuid(
  "Workspace the credential is scoped to. When omitted at creation, the default workspace of the account."
).pipe(Schema.brand("WorkspaceId"))
export type WorkspaceId = typeof WorkspaceId.Type
