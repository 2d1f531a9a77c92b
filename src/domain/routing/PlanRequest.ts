import { Schema, Struct } from "effect"
import { WorkspaceId } from "../Identifiers.ts"
import { RoutingRequest } from "./RoutingRequest.ts"

/** A request to plan for, as its account asks: of its default workspace unless it names one. */
export const PlanRequest = Schema.Struct({
  ...Struct.omit(RoutingRequest.fields, ["account_id"]),
  workspace_id: Schema.optionalKey(WorkspaceId)
}).annotate({ identifier: "PlanRequest" })
export type PlanRequest = typeof PlanRequest.Type
