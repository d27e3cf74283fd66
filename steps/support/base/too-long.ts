/** Requests that no model takes, being too long, in the words of those who refuse. */
import { SDK } from './errors.ts'

/** As Anthropic, Bedrock, Google, xAI, Groq, Kimi, GLM, Qwen and vLLM say it. */
const TOO_LONG = new RegExp(
  'context.?(length|window|size|limit)|(prompt|input) (is )?too long|too many tokens|' +
    '(input|prompt|model) token (count|limit)|maximum (prompt|model) length|' +
    'length of the messages|input length|prompt (exceeds|超长)',
  'i',
)

/** Whether a request was refused because its messages are too long for the model. */
export function isTooLong(error: unknown): boolean {
  if (!(error instanceof SDK.APIError)) return false
  if (error.status === 413) return true
  const isRefused = error.status === 400 || error.status === 422
  return isRefused && TOO_LONG.test(`${error.message} ${JSON.stringify(error.error)}`)
}
