type Seen = { readonly keys: ReadonlyArray<string>; readonly path: string; readonly read: Set<string | symbol> }

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null

/**
 * The members of a value that a validator never reads, because it does not know them. A validator derived from an OpenAPI
 * document accepts unknown members, but Kubernetes refuses or silently drops them.
 */
export const unreadKeys = <A extends object>(value: A, validate: (watched: A) => void): ReadonlyArray<string> => {
  const objects: Array<Seen> = []
  const watch = (inner: unknown, path: string): unknown => {
    if (!isObject(inner)) return inner
    if (Array.isArray(inner)) return inner.map((item, index) => watch(item, `${path}[${index}]`))
    const copy: object = Object.create(Object.getPrototypeOf(inner) as object | null) as object
    for (const [key, member] of Object.entries(inner)) Reflect.set(copy, key, watch(member, `${path}.${key}`))
    const read = new Set<string | symbol>()
    objects.push({ keys: Object.keys(inner), path, read })
    return new Proxy(copy, {
      get: (target, key): unknown => {
        read.add(key)
        return Reflect.get(target, key)
      }
    })
  }
  validate(watch(value, "") as A)
  return objects.flatMap(({ keys, path, read }) =>
    keys.filter((key) => !read.has(key)).map((key) => `${path}.${key}`.slice(1))
  )
}
