export default {
  test: {
    include: ["durable.test.mjs"],
    testTimeout: 60000,
    reporters: ["json", "default"],
    outputFile: { json: process.env.DS_REPORT },
  },
}
