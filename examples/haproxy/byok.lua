-- Asks byok for keys, and tells it how providers answered.
local socket = "unix@/run/byok/forward.sock"

local function ask(path, headers)
  local sent = {}
  for name, value in pairs(headers) do
    if value ~= nil and value ~= "" then sent[name] = { tostring(value) } end
  end
  return core.httpclient():get{ url = "http://byok" .. path, headers = sent, dst = socket }
end

-- Answers the client as byok does. Without an answer of byok: 503.
local function answer(txn, response)
  local reply = txn:reply()
  local isAnswer = response.headers ~= nil and response.headers["x-byok-error"] ~= nil
  reply:set_status(isAnswer and response.status or 503)
  if isAnswer then
    for _, name in ipairs({ "content-type", "x-byok-error", "retry-after", "retry-after-ms", "x-should-retry" }) do
      if response.headers[name] ~= nil then reply:add_header(name, response.headers[name][0]) end
    end
    reply:set_body(response.body)
  end
  txn:done(reply)
end

core.register_action("byok_key", { "http-req" }, function(txn, provider)
  local headers = txn.http:req_get_headers()
  local function first(name) return headers[name] ~= nil and headers[name][0] or nil end
  local response = ask("/v1/forward/" .. provider, {
    authorization = first("authorization"),
    ["x-api-key"] = first("x-api-key")
  })
  -- Only what byok says goes on: neither the caller's key nor X-Byok-* of the client.
  for name in pairs(headers) do
    if name == "authorization" or name == "x-api-key" or name:find("^x%-byok%-") then txn.http:req_del_header(name) end
  end
  if response.status ~= 200 then return answer(txn, response) end
  for _, name in ipairs({ "authorization", "x-api-key" }) do
    if response.headers[name] ~= nil then txn.http:req_set_header(name, response.headers[name][0]) end
  end
  txn:set_var("txn.attempt", response.headers["x-byok-attempt"][0])
end, 1)

core.register_action("byok_report", { "http-res" }, function(txn)
  local wait = txn.http:res_get_headers()["retry-after"]
  local status = txn.f:status()
  local response = ask("/v1/refused", {
    ["x-byok-attempt"] = txn:get_var("txn.attempt"),
    ["x-byok-status"] = status,
    ["x-byok-retry-after"] = wait ~= nil and wait[0] or nil
  })
  if status == 401 or status == 402 or status == 403 or status == 429 then answer(txn, response) end
end)
