import { Schema, SchemaTransformation } from "effect"
import { WorkspaceId } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"

/** A decimal number in a query. A parameter that is given twice, or empty, is not one (L2). */
const integer = (minimum: number, maximum: number) => {
  const message = `must be an integer from ${minimum} to ${maximum}, given once`
  return Schema.String.annotate({ message })
    .check(Schema.isPattern(/^\d{1,10}$/, { message }))
    .pipe(
      Schema.decodeTo(
        Schema.Int.check(Schema.isBetween({ minimum, maximum }, { message })),
        SchemaTransformation.numberFromString
      )
    )
}

/** What list may be asked for. Unknown parameters are ignored (L2). */
export const ListQuery = Schema.Struct({
  offset: Schema.optionalKey(integer(0, 2_147_483_647)),
  limit: Schema.optionalKey(integer(1, 100)),
  workspace_id: Schema.optionalKey(WorkspaceId),
  provider: Schema.optionalKey(Provider)
})
