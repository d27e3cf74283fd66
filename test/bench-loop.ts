/**
 * The shortest loop over the SDK that does what step 04 does in a turn, with the same tool
 * and the same request: `npm run bench` compares. It is given `system` and `tools` as JSON.
 */
import Anthropic from '@anthropic-ai/sdk'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { runReadFile } from '../steps/support/tools/files.ts'

const client = new Anthropic()
const { system, tools } = JSON.parse(process.argv[2])
const workdir = process.cwd()
const messages: MessageParam[] = [{ role: 'user', content: 'go' }]
for (;;) {
  const { content } = await client.messages.create({
    model: 'model',
    max_tokens: 8000,
    system,
    tools,
    messages,
  })
  messages.push({ role: 'assistant', content })
  const call = content.find((block) => block.type === 'tool_use')
  if (!call) break
  const result = await runReadFile(call.input as { path: string }, { workdir })
  messages.push({
    role: 'user',
    content: [{ type: 'tool_result', tool_use_id: call.id, content: result }],
  })
}
