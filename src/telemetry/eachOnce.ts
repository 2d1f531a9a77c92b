/** Remembers what was made for each name. The names must be few. */
export const eachOnce = <Name, Made>(make: (name: Name) => Made) => {
  const made = new Map<Name, Made>()
  return (name: Name): Made => {
    const found = made.get(name)
    if (found !== undefined) return found
    const fresh = make(name)
    made.set(name, fresh)
    return fresh
  }
}
