import { Schema, SchemaAST, type SchemaIssue } from "effect"
import { nearestWord } from "./nearestWord.ts"

/** An invalid field and its rule (D7). The message never repeats a value of the input. */
export const Issue = Schema.Struct({
  path: Schema.Array(Schema.Union([Schema.String, Schema.Finite])).annotate({
    description:
      "Path in the request body: member names and array indices, empty for the body as a whole; or the name of a header or query parameter.",
    examples: [["allowed_models", 3]]
  }),
  message: Schema.String.annotate({ examples: ["must be a string"] })
})
export type Issue = typeof Issue.Type

/** The message for a member that is not there. */
export const missingMember = "is required"

/** The message for an unknown member: the member that is likely meant, or all that are known. */
const unknownMember = (name: string, { propertySignatures }: SchemaAST.Objects) => {
  const known = propertySignatures.map(({ name }) => String(name))
  const nearest = nearestWord(name, known)
  return nearest === undefined
    ? `unknown member; known: ${known.join(", ")}`
    : `unknown member; the nearest is ${nearest}`
}

/**
 * Converts a decoding failure to issues with the `message` annotations of our schemas (D7). The message of a check
 * replaces those of the issues inside it.
 */
export const issuesOf = (
  issue: SchemaIssue.Issue,
  path: Issue["path"] = [],
  filterMessage?: string
): ReadonlyArray<Issue> => {
  const oneIssue = (message: string) => [{ path, message: filterMessage ?? message }]
  switch (issue._tag) {
    case "Pointer": {
      const { issue: inner } = issue
      if (inner._tag === "UnexpectedKey" && SchemaAST.isObjects(inner.ast)) {
        const name = String(issue.path[0])
        const annotated = inner.ast.annotations?.["messageUnexpectedKey"]
        const message = typeof annotated === "string" ? annotated : unknownMember(name, inner.ast)
        // An unknown member name may be a secret: repeat only short words.
        return [{ path: /^[\w.[\]-]{1,20}$/.test(name) ? [...path, name] : path, message: filterMessage ?? message }]
      }
      const segments = issue.path.map((segment) => (typeof segment === "number" ? segment : String(segment)))
      return issuesOf(issue.issue, [...path, ...segments], filterMessage)
    }
    case "Encoding":
      return issuesOf(issue.issue, path, filterMessage)
    case "Filter":
      return issuesOf(issue.issue, path, filterMessage ?? issue.filter.annotations?.message)
    case "MissingKey":
      return oneIssue(missingMember)
    case "InvalidValue":
      // An empty path: the body could not be parsed.
      return oneIssue(path.length === 0 ? "must be valid JSON" : (issue.annotations?.message ?? "is not allowed"))
    case "Composite":
    case "AnyOf":
      if (issue.issues.length > 0) return issue.issues.flatMap((inner) => issuesOf(inner, path, filterMessage))
  }
  // The rest: a wrong type, or a value that no alternative of a union fits.
  const annotated = "ast" in issue ? issue.ast.annotations?.["message"] : undefined
  return oneIssue(
    typeof annotated === "string" ? annotated : path.length === 0 ? "must be a JSON object" : "has the wrong type"
  )
}
