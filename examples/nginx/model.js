// Reads the model from the body for byok, and goes on in the location @proxied.
/** @param {{ requestText: string, variables: Record<string, string>, internalRedirect: (to: string) => void }} r */
function readModel(r) {
  let model
  try {
    model = JSON.parse(r.requestText).model
  } catch (e) {
    model = undefined // No JSON: byok offers only keys that serve every model.
  }
  // Encoded, because a line break in the model would end the request line to byok and begin a header.
  r.variables.model = typeof model === "string" ? encodeURIComponent(model) : ""
  r.internalRedirect("@proxied")
}

export default { readModel }
