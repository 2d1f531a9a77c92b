const isEncoded = (path: string) => {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/**
 * Makes the router take every path literally: one that is not percent-encoded UTF-8 stands for itself, and `;` starts
 * no query. Otherwise a request could bypass authentication or reach another resource (D5, D10).
 */
export const routableUrl = (url: string): string => {
  const [path = ""] = /^[^?#]*/.exec(url) ?? []
  if (!/[%;]/.test(path)) return url
  const encoded = isEncoded(path) ? path : path.replaceAll("%", "%25")
  return encoded.replaceAll(";", "%3B") + url.slice(path.length)
}
