import { ConfigProvider, Layer } from "effect"

/** Reads the environment at each lookup: Effect's default keeps a copy, including secrets removed since. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)
