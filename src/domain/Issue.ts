import { Schema, SchemaAST, type SchemaIssue } from "effect"

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
      // An unknown member name may be a secret: repeat only short words.
      if (issue.issue._tag === "UnexpectedKey" && !/^[\w.[\]-]{1,20}$/.test(String(issue.path[0]))) {
        return issuesOf(issue.issue, path)
      }
      const segments = issue.path.map((segment) => (typeof segment === "number" ? segment : String(segment)))
      return issuesOf(issue.issue, [...path, ...segments], filterMessage)
    }
    case "Encoding":
      return issuesOf(issue.issue, path, filterMessage)
    case "Filter":
      return issuesOf(issue.issue, path, filterMessage ?? issue.filter.annotations?.message)
    case "MissingKey":
      return oneIssue("is required")
    case "InvalidValue":
      // An empty path: the body could not be parsed.
      return oneIssue(path.length === 0 ? "must be valid JSON" : (issue.annotations?.message ?? "is not allowed"))
    case "Composite":
    case "AnyOf":
      if (issue.issues.length > 0) return issue.issues.flatMap((inner) => issuesOf(inner, path, filterMessage))
  }
  // The rest: an unknown member, a wrong type, or a value that no alternative of a union fits.
  const annotation = issue._tag === "UnexpectedKey" ? "messageUnexpectedKey" : "message"
  const annotated = "ast" in issue ? issue.ast.annotations?.[annotation] : undefined
  if (issue._tag === "UnexpectedKey" && annotated === undefined && SchemaAST.isObjects(issue.ast)) {
    return oneIssue(`unknown member; known: ${issue.ast.propertySignatures.map(({ name }) => String(name)).join(", ")}`)
  }
  return oneIssue(
    typeof annotated === "string" ? annotated : path.length === 0 ? "must be a JSON object" : "has the wrong type"
  )
}
